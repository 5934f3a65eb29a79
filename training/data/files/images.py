"""Images with their labels in three parts: train, validation and test. A search uses the first two only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PARTS = ("train", "val", "test")
PART_WORDS = {part: part for part in PARTS}
PART_WORDS |= {"training": "train", "valid": "val", "validation": "val", "testing": "test"}
_PART = re.compile(rf"({'|'.join(PART_WORDS)})(?:[ _-]?(?:set|data|images))?")


def name_part(name: str) -> str | None:
    """Return the part that a folder or a value of `split` names, in any case, or None."""
    match = _PART.fullmatch(name.strip().lower())
    return PART_WORDS[match[1]] if match else None


def order_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in natural order, as timm's readers number classes: 2 before 10, and capitals beside small letters."""
    steps = {name: re.split(r"(\d+)", name.lower()) for name in sorted(names)}
    return tuple(sorted(steps, key=lambda name: [int(step) if step.isdecimal() else step for step in steps[name]]))


class ImageFiles(Sequence["np.ndarray"]):
    """Files that are decoded at each access; with `reduce_to`, large JPEGs are decoded faster and smaller."""

    def __init__(self, paths: Sequence[str], reduce_to: int | None = None) -> None:
        self.paths = tuple(paths)
        self.reduce_to = reduce_to

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        """Decode one image, uint8 (height, width, 3). An image that is away is waited for, because it was there.

        Raises:
            DataAway: it is away for more than a minute.
            UnreadableImage: the file cannot be read; the message names it.
        """
        from training.data.files.away import wait_while_away
        from training.data.files.decode import read_image

        return wait_while_away(lambda: read_image(self.paths[index], self.reduce_to))


@dataclass(frozen=True, eq=False)
class ImagePart:
    """Images and labels. `images[i]` is uint8 RGB (height, width, 3), from one array or from files."""

    labels: np.ndarray  # int64 (N,)
    images: np.ndarray | ImageFiles

    def __len__(self) -> int:
        return len(self.labels)

    def reduced_to(self, side: int) -> ImagePart:
        """Return the same part, whose JPEG files may be decoded smaller, with a shorter side of at least `side` pixels."""
        if not isinstance(self.images, ImageFiles):
            return self
        return ImagePart(self.labels, ImageFiles(self.images.paths, side))

    def select(self, chosen: np.ndarray) -> ImagePart:
        """Return a part with the chosen images, in the order of the positions `chosen` (N,)."""
        if not isinstance(self.images, ImageFiles):
            return ImagePart(self.labels[chosen], self.images[chosen])
        return ImagePart(self.labels[chosen], ImageFiles([self.images.paths[i] for i in chosen], self.images.reduce_to))

    def join(self, other: ImagePart) -> ImagePart:
        """Return a part with these images, followed by the other's."""
        import numpy as np

        labels = np.concatenate([self.labels, other.labels])
        if not isinstance(self.images, ImageFiles):
            return ImagePart(labels, np.concatenate([self.images, other.images]))
        assert isinstance(other.images, ImageFiles)
        return ImagePart(labels, ImageFiles(self.images.paths + other.images.paths, self.images.reduce_to))


@dataclass(frozen=True)
class Remark:
    """What is odd about the data, but does not prevent training."""

    short: str
    sentence: str


@dataclass(frozen=True, eq=False)
class ImageData:
    name: str
    classes: tuple[str, ...]  # a label is a position in it
    train: ImagePart
    val: ImagePart
    test: ImagePart  # for the final score only
    left_out: tuple[str, ...] = ()  # unreadable files that the user has chosen to skip
    not_read: tuple[str, ...] = ()  # files in the class folders that are not images
    unused: tuple[str, ...] = ()  # folders with images beside the folders of the parts
    remarks: tuple[Remark, ...] = ()  # what the source has seen when it listed the files
    listed: tuple[str, ...] = ()  # the classes in the order of the source, if they have another one now

    def in_order(self, classes: Sequence[str] = ()) -> ImageData:
        """Return the same images in the same places, with labels that are positions in these classes.

        Without `classes`, these are in the order of the source: what is drawn and a digest depend on it in all versions.
        """
        import numpy as np

        if (after := tuple(classes) or self.listed or self.classes) == self.classes:
            return self
        position = {name: label for label, name in enumerate(after)}
        label = np.array([position[name] for name in self.classes])
        train, val, test = (ImagePart(label[part.labels], part.images) for part in (self.train, self.val, self.test))
        return replace(self, classes=after, train=train, val=val, test=test, listed=self.listed or self.classes)

    @property
    def paths(self) -> list[str]:
        """The files of all parts; none for images in memory."""
        parts = (self.train.images, self.val.images, self.test.images)
        return [path for images in parts if isinstance(images, ImageFiles) for path in images.paths]
