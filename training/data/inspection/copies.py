"""Find images that occur more than once: byte for byte, or resized and re-encoded (Krawetz 2013, dHash)."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np

from training.data.files.cache import cached, key_of_files
from training.data.files.decode import UnreadableImage
from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.errors import printable
from training.process.resources import map_in_threads
from training.process.text_files import refuse_irregular

# Measured on photographs, see docs/data.md. The hash finds candidates fast, and the correlation decides.
MOST_BITS = 12  # of 64 in which the hashes of two candidates differ
LEAST_CORRELATION = 0.95  # of the grey levels of two thumbnails
_SIDE = 16
_FLAT = 4.0  # grey levels; with a smaller deviation an image shows nothing that could be compared
_READ_SIDE = 64
_BLOCK = 16  # rows of the table of distances that are computed at once, so that they stay in the processor's cache


@dataclass(frozen=True)
class Image:
    part: str
    label: int
    name: str  # the path, or the position in its part


def find_copies(data: ImageData) -> list[list[Image]]:
    """Return the groups of equal images across all parts."""
    groups: dict[object, list[Image]] = defaultdict(list)
    files: list[tuple[str, Image]] = []
    for part, images in list_images(data):
        for index, image in enumerate(images):
            if isinstance(part.images, ImageFiles):
                files.append((part.images.paths[index], image))
            else:
                digest = hashlib.blake2b(np.ascontiguousarray(part.images[index]).data, digest_size=16)
                groups[digest.digest()].append(image)
    for of_file, (_, image) in zip(_digest_files([path for path, _ in files]), files, strict=True):
        if of_file is not None:
            groups[of_file].append(image)
    return [group for group in groups.values() if len(group) > 1]


def list_images(data: ImageData) -> list[tuple[ImagePart, list[Image]]]:
    """Return train, validation and test, each with its images by name."""
    parts = ((data.train, "train"), (data.val, "validation"), (data.test, "test"))
    return [(part, [_name(part, name, index) for index in range(len(part))]) for part, name in parts]


def _name(part: ImagePart, name: str, index: int) -> Image:
    images = part.images
    called = printable(images.paths[index]) if isinstance(images, ImageFiles) else f"{name} image {index}"
    return Image(name, int(part.labels[index]), called)


def _digest_files(paths: Sequence[str]) -> list[str | None]:
    """Return digests of the contents, or None for files whose size is unique, so that most files are not read."""
    sizes = list(map(_size_of, paths))
    frequency = Counter(sizes)
    chosen = [path for path, size in zip(paths, sizes, strict=True) if frequency[size] > 1]
    computed = cached("copies", key_of_files(chosen, 1), lambda: map_in_threads(_digest_file, chosen)) if chosen else []
    digests = dict(zip(chosen, computed, strict=True))
    return [digests.get(path) for path in paths]


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _digest_file(path: str) -> str | None:
    try:
        refuse_irregular(path)
        with open(path, "rb") as file:
            return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()
    except OSError:  # the check of the images reports it
        return None


def find_near_copies(data: ImageData) -> list[tuple[Image, Image]]:
    """Return each validation or test image that almost equals one of an earlier part, with the most similar one.

    Images that are equal byte for byte are left out: `find_copies` has them.
    """
    listed = list_images(data)
    parts, images = [part for part, _ in listed], [image for _, part_images in listed for image in part_images]
    paths = data.paths
    sizes = [len(part) for part in parts]
    if len(paths) == len(images):
        matches = cached("near-copies", key_of_files(paths, 1, sizes), lambda: _match(parts))
    else:
        matches = _match(parts)
    group_of = {image: number for number, group in enumerate(find_copies(data)) for image in group}
    pairs = ((images[later], images[earlier]) for later, earlier in matches)
    return [pair for pair in pairs if pair[0] not in group_of or group_of[pair[0]] != group_of.get(pair[1])]


def _match(parts: list[ImagePart]) -> list[tuple[int, int]]:
    """Return the positions, over all parts, of each image and the one that it almost equals."""
    small = [part.reduced_to(_READ_SIDE) for part in parts]
    made = [summary for part in small for summary in map_in_threads(partial(_summarise, part), range(len(part)))]
    hashes = np.array([fingerprint for fingerprint, _ in made], np.uint64)
    thumbnails = np.stack([thumbnail for _, thumbnail in made])
    matches: list[tuple[int, int]] = []
    begin = 0
    for end in np.cumsum([len(part) for part in parts]):
        for first in range(begin, end, _BLOCK) if begin else ():
            later = np.arange(first, min(first + _BLOCK, end))
            bits = np.bitwise_count(hashes[later, None] ^ hashes[None, :begin])
            for row in np.flatnonzero((bits <= MOST_BITS).any(axis=1)):
                near = np.flatnonzero(bits[row] <= MOST_BITS)
                alike = thumbnails[near] @ thumbnails[later[row]]
                if alike.max() >= LEAST_CORRELATION:
                    matches.append((int(later[row]), int(near[alike.argmax()])))
        begin = int(end)
    return matches


def _summarise(part: ImagePart, index: int) -> tuple[int, np.ndarray]:
    """Return an image's hash, and its grey thumbnail with mean 0 and length 1, float32 (256,)."""
    try:
        pixels = part.images[index]
    except UnreadableImage:  # the check of the images reports it
        return 0, np.zeros(_SIDE**2, np.float32)
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    levels = cv2.resize(grey, (9, 8), interpolation=cv2.INTER_AREA)
    bits = np.packbits(levels[:, 1:] > levels[:, :-1]).view(np.uint64)
    thumbnail = cv2.resize(grey.astype(np.float32), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).ravel()
    thumbnail -= thumbnail.mean()
    return int(bits[0]), thumbnail / max(float(np.linalg.norm(thumbnail)), _FLAT * _SIDE)
