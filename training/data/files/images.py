"""Images with their labels, in three parts of which the search sees two: train, validation, test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.data.files.decode import read_image

Pixels = np.ndarray


class ImageFiles(Sequence[Pixels]):
    """Files that are decoded each time they are asked for; with `reduce_to`, large JPEGs faster and smaller."""

    def __init__(self, paths: Sequence[str], reduce_to: int | None = None) -> None:
        self.paths = tuple(paths)
        self.reduce_to = reduce_to

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """Decode one image, uint8 (height, width, 3).

        Raises:
            UnreadableImage: naming the file.
        """
        return read_image(self.paths[index], self.reduce_to)


@dataclass(frozen=True, eq=False)
class ImagePart:
    """`images[i]` is uint8 RGB of shape (height, width, 3): an array of all, or files decoded when read."""

    labels: np.ndarray  # int64 (N,)
    images: np.ndarray | ImageFiles

    def __len__(self) -> int:
        return len(self.labels)

    def reduced_to(self, side: int) -> ImagePart:
        """Return the same part, of which no more is decoded than a shorter side of at least `side` needs."""
        if isinstance(self.images, np.ndarray):
            return self
        return ImagePart(self.labels, ImageFiles(self.images.paths, side))

    @property
    def in_memory(self) -> bool:
        return isinstance(self.images, np.ndarray)

    def select(self, chosen: np.ndarray) -> ImagePart:
        """Return the part that holds the chosen images, in that order."""
        if isinstance(self.images, np.ndarray):
            return ImagePart(self.labels[chosen], self.images[chosen])
        return ImagePart(self.labels[chosen], ImageFiles([self.images.paths[i] for i in chosen], self.images.reduce_to))

    def join(self, other: ImagePart) -> ImagePart:
        """Return the part that holds these images, then the other's."""
        labels = np.concatenate([self.labels, other.labels])
        if isinstance(self.images, np.ndarray):
            return ImagePart(labels, np.concatenate([self.images, other.images]))
        assert isinstance(other.images, ImageFiles)
        return ImagePart(labels, ImageFiles(self.images.paths + other.images.paths, self.images.reduce_to))


@dataclass(frozen=True, eq=False)
class ImageData:
    name: str
    classes: tuple[str, ...]  # sorted; a label is a position here
    train: ImagePart
    val: ImagePart
    test: ImagePart  # for the final score only
    left_out: tuple[str, ...] = ()  # unreadable files that the user asked to go on without
    not_read: tuple[str, ...] = ()  # files among the images that are no images
