"""Identify the data of a training: a name, a digest of images, labels and split, and the sizes."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from training.contract.specs import Data
from training.data.files.cache import key_of_files
from training.data.files.images import ImageData, ImageFiles

SAMPLES = 20  # files of each part whose content is in the digest that does not depend on the place
MOST_READ = 20_000  # files of which `list_files` reads a part
MOST_LISTED = 200_000  # files that it lists
ENDS = 2**15  # bytes at each end of a file that it reads


def identify(data: ImageData, spec: Data) -> dict[str, str | int]:
    """Return plain values.

    `digest` uses pixels in memory, and for files their path, size and modification time. `content` is the same wherever
    the files lie: it uses their name, their size, and the bytes of some.
    """
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return {
        "name": data.name,
        "digest": _digest(data, identify_images),
        "content": _digest(data, partial(_identify_content, os.path.commonpath(data.paths) if data.paths else "")),
        "source": getattr(spec, "path", None) or getattr(spec, "root", None) or data.name,
        "classes": len(data.classes),
        **{f"{name}_images": len(part) for name, part in parts.items()},
    }


def list_files(data: ImageData, spec: Data) -> dict[str, str]:
    """Return the size and a checksum of each file, by its name below the folder of the data.

    The checksum is that of both ends of the file, where a photograph hardly repeats another one. It is left out for most
    files of a very large set. Nothing is listed for images in memory and for sets with more than 200,000 files.
    """
    paths = data.paths
    if not paths or len(paths) > MOST_LISTED:
        return {}
    root = os.path.abspath(os.path.expanduser(getattr(spec, "root", None) or "")) + os.sep
    if not all(path.startswith(root) for path in paths):
        root = os.path.commonpath(paths) + os.sep
    step = -(-len(paths) // MOST_READ)
    return {path.removeprefix(root): _describe_file(path, number % step == 0) for number, path in enumerate(paths)}


def _describe_file(path: str, is_read: bool) -> str:
    try:
        size = os.path.getsize(path)
        if not is_read:
            return str(size)
        with open(path, "rb") as file:
            checksum = zlib.crc32(file.read(ENDS))
            file.seek(max(ENDS, size - ENDS))
            return f"{size} {zlib.crc32(file.read(), checksum):08x}"
    except OSError:
        return "missing"


def _digest(data: ImageData, identify_part: Callable[[np.ndarray | ImageFiles], bytes | memoryview]) -> str:
    data = data.in_order()
    digest = hashlib.blake2b(repr(data.classes).encode(), digest_size=8)
    for part in (data.train, data.val, data.test):
        digest.update(part.labels.tobytes())
        digest.update(identify_part(part.images))
    return digest.hexdigest()


def _identify_content(common: str, images: np.ndarray | ImageFiles) -> bytes | memoryview:
    """Return a value that is the same wherever the files lie.

    It has the name and size of each file below the folder `common`, which all are in, and the content of some.
    """
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


def identify_images(images: np.ndarray | ImageFiles) -> bytes | memoryview:
    """Return the pixels in memory, or for files a digest of their path, size and modification time."""
    return key_of_files(images.paths).encode() if isinstance(images, ImageFiles) else np.ascontiguousarray(images).data
