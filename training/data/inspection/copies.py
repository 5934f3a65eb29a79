"""Find images that occur more than once in the data, byte for byte."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from training.data.files.answers import key_of_files, remember
from training.data.files.decode import printable, refuse_irregular
from training.data.files.images import ImageData, ImageFiles
from training.process.resources import count_cpus

_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Image:
    part: str
    label: int
    name: str  # the path, or the position in its part


def find_copies(data: ImageData) -> list[list[Image]]:
    """Return the groups of equal images across all parts."""
    groups: dict[object, list[Image]] = defaultdict(list)
    files: list[tuple[str, Image]] = []
    for part, name in ((data.train, "train"), (data.val, "validation"), (data.test, "test")):
        for index, label in enumerate(part.labels.tolist()):
            if isinstance(part.images, ImageFiles):
                path = part.images.paths[index]
                files.append((path, Image(name, label, printable(path))))
            else:
                groups[_digest(part.images[index])].append(Image(name, label, f"{name} image {index}"))
    for digest, (_, image) in zip(_digest_files([path for path, _ in files]), files, strict=True):
        if digest is not None:
            groups[digest].append(image)
    return [group for group in groups.values() if len(group) > 1]


def _digest(pixels: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=16).digest()


def _digest_files(paths: Sequence[str]) -> list[str | None]:
    """Return digests of the contents, or None for files whose size is unique, so that most files are not read."""
    sizes = list(map(_size_of, paths))
    frequency = Counter(sizes)
    chosen = [path for path, size in zip(paths, sizes, strict=True) if frequency[size] > 1]

    def digest_all() -> list[str | None]:
        with ThreadPoolExecutor(count_cpus()) as pool:
            return list(pool.map(_digest_file, chosen))

    digests = dict(zip(chosen, remember("copies", key_of_files(chosen, 1), digest_all) if chosen else [], strict=True))
    return [digests.get(path) for path in paths]


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _digest_file(path: str) -> str | None:
    digest = hashlib.blake2b(digest_size=16)
    try:
        refuse_irregular(path)
        with open(path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError:  # the check of the images reports it
        return None
    return digest.hexdigest()
