"""A data set as plain values: its classes, statistics and remarks, or its unreadable files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ClassRow:
    """The images of one class in each part."""

    name: str
    train: int
    val: int
    test: int


@dataclass(frozen=True)
class SpeedRow:
    """Training images per second of one backend; `reason` says why a backend cannot load this recipe."""

    backend: str
    median: float | None
    least: float | None
    most: float | None
    reason: str = ""


@dataclass(frozen=True)
class InputRow:
    """What the model gets: side in pixels, resizing, and the mean and deviation of red, green and blue."""

    image_size: int
    interpolation: str
    crop: float
    mean: Sequence[float]
    std: Sequence[float]
    random_crop: str
    flip: float
    augmentation: str
    backend: str


@dataclass(frozen=True)
class NearCopyRow:
    """A validation or test image that almost equals one of another part."""

    name: str
    part: str
    other_name: str
    other_part: str


@dataclass(frozen=True)
class DataResult:
    """What `sweep data` found: `mean` and `std` are those of the training images, `picture` is the file that it wrote."""

    name: str
    classes: list[ClassRow]
    remarks: list[str]
    shorter_side: int
    mean: Sequence[float]
    std: Sequence[float]
    input: InputRow
    picture: str
    speeds: list[SpeedRow] = field(default_factory=list)
    near_copies: list[NearCopyRow] = field(default_factory=list)


@dataclass(frozen=True)
class FileRow:
    """A file that cannot be read."""

    path: str
    reason: str


@dataclass(frozen=True)
class FilesResult:
    """What `sweep data --check` found in `images` files."""

    name: str
    images: int
    unreadable: list[FileRow]
    remarks: list[str]
    near_copies: list[NearCopyRow] = field(default_factory=list)
