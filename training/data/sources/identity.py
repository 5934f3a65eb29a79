"""Identify the data of a training: a name, a digest of images, labels and split, and the sizes."""

from __future__ import annotations

import hashlib

import numpy as np

from training.contract.specs import Data
from training.data.files.answers import key_of_files
from training.data.files.images import ImageData, ImageFiles


def identify(data: ImageData, spec: Data) -> dict[str, str | int]:
    """Return plain values. The digest uses pixels in memory, and for files their path, size and modification time."""
    digest = hashlib.blake2b(repr(data.classes).encode(), digest_size=8)
    parts = {"train": data.train, "val": data.val, "test": data.test}
    for part in parts.values():
        digest.update(part.labels.tobytes())
        digest.update(identify_images(part.images))
    return {
        "name": data.name,
        "digest": digest.hexdigest(),
        "source": getattr(spec, "path", None) or getattr(spec, "root", None) or data.name,
        "classes": len(data.classes),
        **{f"{name}_images": len(part) for name, part in parts.items()},
    }


def identify_images(images: np.ndarray | ImageFiles) -> bytes | memoryview:
    """Return the pixels in memory, or for files a digest of their path, size and modification time."""
    return key_of_files(images.paths).encode() if isinstance(images, ImageFiles) else np.ascontiguousarray(images).data
