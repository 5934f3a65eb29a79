"""Divide a folder of photographs: some of the classes pre-train a backbone, the others are what it is fine-tuned on."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.data.files.images import ImageFiles, ImagePart
from training.data.load_data import load_data
from training.data.sources.image_folder import ImageFolder
from training.data.sources.manifest import Manifest
from training.data.splits import split_stratified
from training.errors import UserError

EARLIER, TUNED = "earlier.csv", "photos.csv"
FEWEST_CLASSES = 4


@dataclass(frozen=True)
class Sizes:
    """Images in the parts of the data that the study fine-tunes on; its test split is that of the folder."""

    train: int = 100
    val: int = 2000


def divide(photos: Path, folder: Path, sizes: Sizes) -> None:
    """Write two tables of files: `earlier.csv` has every other class, and `photos.csv` has the rest.

    Raises:
        UserError: the folder is no data set, or too small for the sizes.
    """
    data = load_data(ImageFolder(root=str(photos)))
    if len(data.classes) < FEWEST_CLASSES:
        raise UserError(
            f"--photos {photos}: it has {len(data.classes)} classes, and the study needs {FEWEST_CLASSES}: half of them "
            "pre-train the backbone. Give a folder with more classes."
        )
    rest = data.train.join(data.val)
    held_out = _of(data.test, 0)
    halves = split_stratified(held_out.labels, (len(held_out) // 2,), seed=0)
    earlier = {"train": _of(rest, 0), "val": held_out.select(halves[0]), "test": held_out.select(halves[1])}
    tuned = _of(rest, 1)
    if len(tuned) < sizes.train + sizes.val:
        raise UserError(
            f"--photos {photos}: {len(tuned)} images remain for training and validation, fewer than --train {sizes.train} "
            f"and --val {sizes.val} together. Lower one of them."
        )
    train, val, *_ = split_stratified(tuned.labels, (sizes.train, sizes.val), seed=0)
    parts = {"train": tuned.select(train), "val": tuned.select(val), "test": _of(data.test, 1)}
    _write(folder / EARLIER, earlier, data.classes)
    _write(folder / TUNED, parts, data.classes)


def read_test(folder: Path) -> tuple[list[str], list[str]]:
    """Return the paths of the test photographs and the names of their classes."""
    data = load_data(Manifest(path=str(folder / TUNED)))
    assert isinstance(data.test.images, ImageFiles)
    return list(data.test.images.paths), [data.classes[label] for label in data.test.labels]


def _of(part: ImagePart, remainder: int) -> ImagePart:
    """Return the images of every other class: the even ones with remainder 0, the odd ones with 1."""
    return part.select(np.flatnonzero(part.labels % 2 == remainder))


def _write(table: Path, parts: dict[str, ImagePart], classes: tuple[str, ...]) -> None:
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label", "split"))
        for name, part in parts.items():
            assert isinstance(part.images, ImageFiles)
            for path, label in zip(part.images.paths, part.labels, strict=True):
                writer.writerow((path, classes[label], name))
