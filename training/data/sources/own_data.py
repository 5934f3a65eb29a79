"""Data of the user's own: `load` returns images and labels, and the rest is as for other data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import cv2
import numpy as np

from training.contract.specs import BaseData, OwnData
from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.data.sources.folders.image_folder import check_sizes, split_off
from training.data.sources.folders.listing import refuse
from training.data.sources.folders.parts import PARTS
from training.data.sources.packed.unpacked import Sample, store
from training.errors import UserError


def load_own(spec: OwnData) -> ImageData:
    """Call `load`, once per process, and split off the parts that it does not return.

    Raises:
        UserError: `load` raised an exception, or returned something that is not images and labels.
    """
    found = _load_parts(type(spec), spec.model_dump_json(exclude=set(BaseData.model_fields) - {"name"}))
    names = {part: labels for part, (_, labels) in found.items()}
    listings = {
        part: {name: [name] * labels.count(name) for name in dict.fromkeys(labels)} for part, labels in names.items()
    }
    classes = tuple(sorted(listings["train"]))
    check_sizes(spec, listings)
    number = {name: label for label, name in enumerate(classes)}
    parts = {
        part: ImagePart(np.array([number[name] for name in labels], np.int64), images)
        for part, (images, labels) in found.items()
    }
    return split_off(parts, classes, spec)


@lru_cache(maxsize=1)
def _load_parts(kind: type[OwnData], fields: str) -> dict[str, tuple[np.ndarray | ImageFiles, list[str]]]:
    spec = kind.model_validate_json(fields)
    try:
        found = spec.load()
        parts = found if isinstance(found, Mapping) else {"train": found}
        if "train" not in parts or not set(parts) <= set(PARTS):
            refuse(
                spec,
                f"load returns the parts {', '.join(map(str, parts))}",
                "Return train, and val and test if they exist.",
            )
        listed = {part: _list(part_spec) for part, part_spec in parts.items()}
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - any fault of the user's code
        refuse(spec, f"load raised {type(error).__name__}: {str(error).partition(chr(10))[0]}", "Correct it.")
    shapes = {image.shape for images, _ in listed.values() for image in images if isinstance(image, np.ndarray)}
    paths = sum(isinstance(image, str) for images, _ in listed.values() for image in images)
    if shapes and paths:
        refuse(spec, f"load returns pixels for some images and paths for {paths}", "Return one of the two.")
    if len(shapes) == 1:
        return {part: (np.stack(images), labels) for part, (images, labels) in listed.items()}
    # Images of different sizes become files, because an array holds one size.
    write = partial(_write_files, spec) if shapes else lambda images, labels: ImageFiles(images)
    return {part: (write(images, labels), labels) for part, (images, labels) in listed.items()}


def _list(part: Any) -> tuple[list[Any], list[str]]:
    """Return all images, as arrays or as paths, and the names of their classes."""
    names: Sequence[str] = getattr(part, "classes", ())
    is_pair = isinstance(part, tuple) and len(part) == 2
    pairs = list(zip(*part, strict=True)) if is_pair else [part[position] for position in range(len(part))]
    found = [(_read_image(image), _read_label(label, names)) for image, label in pairs]
    return [image for image, _ in found], [label for _, label in found]


def _read_image(image: Any) -> np.ndarray | str:
    if isinstance(image, str):
        return image
    if hasattr(image, "convert"):  # a Pillow image
        image = image.convert("RGB")
    if hasattr(image, "numpy"):
        raise TypeError("an image is a tensor; return Pillow images or arrays, without transforms")
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise TypeError(f"an image is {pixels.dtype} {pixels.shape}; return uint8 (height, width, 3)")
    return np.repeat(pixels[..., None], 3, axis=2) if pixels.ndim == 2 else pixels


def _read_label(label: Any, names: Sequence[str]) -> str:
    if isinstance(label, str):
        return label
    number = int(label)
    if names and not 0 <= number < len(names):
        raise ValueError(f"the label {number} has no name among the {len(names)} classes")
    return str(names[number]) if names else str(number)


def _write_files(spec: OwnData, images: list[np.ndarray], labels: list[str]) -> ImageFiles:
    digest = hashlib.sha256(repr(labels).encode())
    for pixels in images:
        digest.update(repr(pixels.shape).encode())
        digest.update(np.ascontiguousarray(pixels).data)

    def encode() -> Iterator[Sample]:
        for pixels, label in zip(images, labels, strict=True):
            yield Sample(cv2.imencode(".png", pixels[..., ::-1])[1].tobytes(), label)

    return ImageFiles([path for path, _ in store(spec, digest.hexdigest()[:32], encode)])
