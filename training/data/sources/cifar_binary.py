"""CIFAR in the binary form of its authors: each image is a record of one-byte labels and three colour planes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.data.files.images import ImagePart
from training.errors import UserError

_SIDE = 32


@dataclass(frozen=True)
class BinaryForm:
    folder: str
    train: tuple[str, ...]
    test: str
    names: str  # file with the names of the classes, one per line
    labels: int  # number of bytes before the pixels; the last of them is the class


FORMS = {
    "cifar10": BinaryForm(
        "cifar-10-batches-bin",
        tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        "test_batch.bin",
        "batches.meta.txt",
        1,
    ),
    "cifar100": BinaryForm("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", 2),
}


def list_binary(root: Path, name: str) -> list[Path] | None:
    """Return the files of the binary form below `root`, or None if one is missing."""
    form = FORMS[name]
    files = [root / form.folder / file for file in (*form.train, form.test, form.names)]
    return files if all(file.is_file() for file in files) else None


def read_binary(root: Path, name: str) -> tuple[tuple[str, ...], ImagePart, ImagePart]:
    """Return the classes, all training images and all test images.

    Raises:
        UserError: a file is truncated, or has a label without a name.
    """
    form = FORMS[name]
    folder = root / form.folder
    lines = (folder / form.names).read_text(encoding="utf-8").split("\n")
    classes = tuple(line.strip() for line in lines if line.strip())
    train = [_read_records(folder / file, form.labels, len(classes)) for file in form.train]
    labels, images = (np.concatenate(column) for column in zip(*train, strict=True))
    return classes, ImagePart(labels, images), ImagePart(*_read_records(folder / form.test, form.labels, len(classes)))


def _read_records(file: Path, label_count: int, class_count: int) -> tuple[np.ndarray, np.ndarray]:
    content = np.fromfile(file, np.uint8)
    length = label_count + 3 * _SIDE**2
    if not len(content) or len(content) % length:
        raise UserError(
            f"{file}: its length is not a multiple of {length} bytes, so it is cut or of another kind. Download it again."
        )
    records = content.reshape(-1, length)
    labels = records[:, label_count - 1].astype(np.int64)
    if labels.max() >= class_count:
        raise UserError(
            f"{file}: label {labels.max()} has no name among the {class_count} classes. Download the files again."
        )
    planes = records[:, label_count:].reshape(-1, 3, _SIDE, _SIDE)
    return labels, np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
