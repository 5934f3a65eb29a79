"""Load the data of a recipe as images in three parts."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import SupportsInt, cast

import cv2
import numpy as np

from training.contract.part import CODE
from training.contract.specs import Data
from training.data.files.assembly import check_sizes, remark_unlabelled, split_off
from training.data.files.images import PARTS, ImageData, ImageFiles
from training.data.files.listing import has_class_folders, is_hidden, is_no_label
from training.data.files.unpacked import Sample, store
from training.data.splits import take
from training.errors import UserError, describe_error
from training.recipe import Recipe

Pairs = list[tuple[object, str | SupportsInt]]  # each image with its label


def load_data(spec: Data) -> ImageData:
    """Load the data of a recipe; the split depends on `split_seed` alone."""
    fields = absolute(spec).model_dump_json(exclude={"epoch_size"})
    # Files are listed each time, because they may have changed.
    data = _load(spec) if spec.reads_files else _load_once(type(spec), fields)
    return take(data, spec.train_size, spec.split_seed)


def absolute(spec: Data) -> Data:
    """Return the spec with absolute paths, so that it is valid in every process."""
    paths = {name: value for name in ("path", "root") if (value := getattr(spec, name, None)) and "://" not in value}
    return spec.model_copy(update={name: os.path.abspath(os.path.expanduser(value)) for name, value in paths.items()})


def kind_of(folder: str) -> str:
    """Return the kind of data in a folder, by the files in it and in its subfolders; folders of classes come first."""
    path = Path(os.path.expanduser(folder))
    for file in sorted(file for pattern in ("*", "*/*") for file in path.glob(pattern)):
        for kind, data in Recipe.kinds("data").items():
            if not issubclass(data, Data) or not file.name.lower().endswith(data.endings) or not file.is_file():
                continue
            if not any(map(is_hidden, file.relative_to(path).parts)):
                return "image_folder" if has_class_folders(str(path)) else kind
    return "image_folder"


@lru_cache(maxsize=1)
def _load_once(data_class: type[Data], fields: str) -> ImageData:
    return _load(data_class.model_validate_json(fields))


def _load(spec: Data) -> ImageData:
    try:
        loaded = spec.load()
        return loaded if isinstance(loaded, ImageData) else _complete(spec, loaded)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if CODE not in type(spec).model_fields:  # it is bundled
            raise
        spec.refuse(f"load raised {describe_error(error)}", "Correct it.")


def _complete(spec: Data, loaded: object) -> ImageData:
    """Number the classes of images with labels, and split off the parts that are missing."""
    named = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    if "train" not in named or not set(named) <= set(PARTS):
        spec.refuse(f"load returns the parts {', '.join(map(str, named))}", "Return train, and val and test if any.")
    pairs = {part: _pair(images) for part, images in named.items()}
    unlabelled = _find_unlabelled(pairs)
    with_labels = {part: images for part, images in named.items() if part not in unlabelled}
    listed = {part: _list(pairs[part], getattr(images, "classes", ())) for part, images in with_labels.items()}
    images = _store(spec, listed)
    counts = {part: Counter(labels) for part, (_, labels) in listed.items()}
    check_sizes(spec, {part: {name: [name] * of[name] for name in of} for part, of in counts.items()})
    labelled = {part: (labels, images[part]) for part, (_, labels) in listed.items()}
    remarks = tuple(remark_unlabelled(part, "no label", spec) for part in unlabelled)
    return replace(split_off(labelled, spec), remarks=remarks)


def _store(
    spec: Data, listed: dict[str, tuple[list[np.ndarray | str], list[str]]]
) -> dict[str, np.ndarray | ImageFiles]:
    """Return the images of each part as one array, or as files if they have different sizes."""
    pixels = {part: [it for it in images if isinstance(it, np.ndarray)] for part, (images, _) in listed.items()}
    paths = {part: [it for it in images if isinstance(it, str)] for part, (images, _) in listed.items()}
    shapes = {image.shape for images in pixels.values() for image in images}
    if shapes and (count := sum(map(len, paths.values()))):
        spec.refuse(f"load returns pixels for some images and paths for {count}", "Return one of the two.")
    if len(shapes) == 1:
        return {part: np.stack(images) for part, images in pixels.items()}
    if shapes:
        return {part: _write_files(spec, pixels[part], labels) for part, (_, labels) in listed.items()}
    return {part: ImageFiles(files) for part, files in paths.items()}


def _pair(part: object) -> Pairs:
    if isinstance(part, tuple) and len(part) == 2:
        return list(zip(*part, strict=True))
    dataset = cast(Pairs, part)
    return [dataset[position] for position in range(len(dataset))]


def _find_unlabelled(pairs: Mapping[str, Pairs]) -> list[str]:
    """Return the parts without a label, as the test parts of public data sets are; not if -1 is a class of train."""
    blank = {
        part: [is_no_label(label.item() if hasattr(label, "item") else label) for _, label in samples]
        for part, samples in pairs.items()
    }
    return [part for part, them in blank.items() if part != "train" and them and all(them) and not any(blank["train"])]


def _list(pairs: Pairs, names: Sequence[str]) -> tuple[list[np.ndarray | str], list[str]]:
    return [_read_image(image) for image, _ in pairs], [_read_label(label, names) for _, label in pairs]


def _read_image(image: object) -> np.ndarray | str:
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


def _read_label(label: str | SupportsInt, names: Sequence[str]) -> str:
    if isinstance(label, str):
        return label
    number = int(label)
    if number != label:
        raise ValueError(f"the label {label} is not a whole number")
    if names and not 0 <= number < len(names):
        raise ValueError(f"the label {number} has no name among the {len(names)} classes")
    return str(names[number]) if names else str(number)


def _write_files(spec: Data, images: list[np.ndarray], labels: list[str]) -> ImageFiles:
    digest = hashlib.sha256(repr(labels).encode())
    for pixels in images:
        digest.update(repr(pixels.shape).encode())
        digest.update(np.ascontiguousarray(pixels).data)

    def encode() -> Iterator[Sample]:
        for pixels, label in zip(images, labels, strict=True):
            yield cv2.imencode(".png", pixels[..., ::-1])[1].tobytes(), label

    return ImageFiles([path for path, _ in store(spec, digest.hexdigest()[:32], encode)])
