"""Identify the data of a training: a name, a digest of images, labels and split, and the sizes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from training.contract.specs import Data
from training.data.files.cache import key_of_files
from training.data.files.images import ImageData, ImageFiles

SAMPLES = 20  # files of each part whose content is in the digest that does not depend on the place


def identify(data: ImageData, spec: Data) -> dict[str, str | int]:
    """Return plain values.

    `digest` uses pixels in memory, and for files their path, size and modification time. `content` is the same wherever
    the files lie: it uses their name, their size, and the bytes of some.
    """
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return {
        "name": data.name,
        "digest": _digest(data, identify_images),
        "content": _digest(data, _identify_content(data)),
        "source": getattr(spec, "path", None) or getattr(spec, "root", None) or data.name,
        "classes": len(data.classes),
        **{f"{name}_images": len(part) for name, part in parts.items()},
    }


def digest_at(data: ImageData, now: str, then: str) -> str:
    """Return the digest that the data had in the folder `then`, for data that lies in the folder `now`."""

    def identify_there(images: np.ndarray | ImageFiles) -> bytes | memoryview:
        if not isinstance(images, ImageFiles):
            return identify_images(images)
        names = [then + path.removeprefix(now) if path.startswith(now + os.sep) else path for path in images.paths]
        return key_of_files(images.paths, names=names).encode()

    return _digest(data, identify_there)


def _digest(data: ImageData, identify_part: Callable[[np.ndarray | ImageFiles], bytes | memoryview]) -> str:
    digest = hashlib.blake2b(repr(data.classes).encode(), digest_size=8)
    for part in (data.train, data.val, data.test):
        digest.update(part.labels.tobytes())
        digest.update(identify_part(part.images))
    return digest.hexdigest()


def _identify_content(data: ImageData) -> Callable[[np.ndarray | ImageFiles], bytes | memoryview]:
    """Return a function for a value that is the same wherever the files lie.

    It has the name and size of each file below the folder that all are in, and the content of some.
    """
    parts = [part.images for part in (data.train, data.val, data.test)]
    paths = [path for images in parts if isinstance(images, ImageFiles) for path in images.paths]
    common = os.path.commonpath(paths) if paths else ""

    def identify_part(images: np.ndarray | ImageFiles) -> bytes | memoryview:
        if not isinstance(images, ImageFiles):
            return identify_images(images)
        digest = hashlib.blake2b(digest_size=16)
        for number, path in enumerate(images.paths):
            with suppress(OSError):  # a file that is missing has no size and no bytes
                digest.update(os.fsencode(path.removeprefix(common)) + b"\0")
                digest.update(b"%d\n" % os.path.getsize(path))
                if number % max(1, len(images.paths) // SAMPLES) == 0:
                    with open(path, "rb") as file:
                        digest.update(file.read())
        return digest.digest()

    return identify_part


def identify_images(images: np.ndarray | ImageFiles) -> bytes | memoryview:
    """Return the pixels in memory, or for files a digest of their path, size and modification time."""
    return key_of_files(images.paths).encode() if isinstance(images, ImageFiles) else np.ascontiguousarray(images).data
