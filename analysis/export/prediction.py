"""Predict labels for images with an exported model; images are decoded and preprocessed as in its training."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from rich.console import Console
from rich.progress import Progress

from analysis.export.classifier import ExportedClassifier, load_classifier
from analysis.export.summary import Form
from training.data.files.decode import UnreadableImage, read_image
from training.data.files.listing import EXTENSIONS, find_files
from training.errors import ImageError, UserError, printable
from training.process.resources import count_cpus
from training.process.writable import complete_file

DIGITS = 6
Write = Callable[[str, np.ndarray], object]


@dataclass(frozen=True)
class Options:
    """How images are predicted, and what is written for each.

    With `top_k`, the labels of the k highest probabilities are written, best first; else the probability of every class.
    With `json`, each image is an object on a line of its own (JSON Lines), not a row of CSV.
    """

    form: Form = "torch"
    device: str = "auto"
    batch_size: int = 64
    top_k: int | None = None
    json: bool = False


def predict_images(
    export: Path, images: Path | list[str], out: Path | None, options: Options = Options()
) -> tuple[int, list[str]]:
    """Write a line for each image of a folder, for one image, or for each path of a list, into `out` or standard output.

    The written names are relative to the folder; those of a list are as they stand there. Two batches of images at a time
    are in memory. A terminal shows a bar, if the lines go into a file. Returns the number of images with a label, and a
    description of each file that could not be read.
    """
    named = [(path, path) for path in images] if isinstance(images, list) else _list_images(images)
    classifier = load_classifier(export, options.form, options.device)
    if options.top_k is not None and options.top_k > len(classifier.classes):
        raise UserError(f"--top-k={options.top_k}: the model has {len(classifier.classes)} classes. Use a smaller one.")
    count = 0
    unreadable: list[str] = []
    with _opened(out) as file:
        write = (_write_json if options.json else _write_csv)(file, classifier.classes, options.top_k)
        for names, rows in classify_files(named, classifier, options.batch_size, unreadable, has_bar=out is not None):
            for name, row in zip(names, rows, strict=True):
                write(name, row)
            count += len(names)
    return count, unreadable


def classify_files(
    named: list[tuple[str, str]],
    classifier: ExportedClassifier,
    batch_size: int,
    unreadable: list[str],
    has_bar: bool = True,
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Names and probabilities (N, classes) of images, batch by batch, from their paths with names.

    A description of each file that cannot be read is added to `unreadable`. A terminal shows a bar.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (has_bar and console.is_terminal)) as bar:
        task = bar.add_task("Predicting", total=len(named))
        for names, pixels in _batches(named, classifier, batch_size, unreadable):
            yield names, classifier.classify(pixels)
            bar.update(task, advance=len(names))


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    # File names that are not valid text keep their bytes.
    with (
        complete_file("--out", out) as path,
        path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        yield file


def _list_images(images: Path) -> list[tuple[str, str]]:
    if images.is_dir():
        if paths := find_files(str(images))[0]:
            return [(path, os.path.relpath(path, images)) for path in paths]
        raise UserError(f"{printable(str(images))}: no image in it (files that end in {', '.join(EXTENSIONS)}).")
    if not images.exists():
        raise UserError(f"{printable(str(images))}: no such folder or image.")
    return [(str(images), images.name)]


def _batches(
    named: list[tuple[str, str]], classifier: ExportedClassifier, size: int, unreadable: list[str]
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
    """Batches of names and prepared images, read by threads while the one before is classified.

    Unreadable files are added to `unreadable`.
    """

    def read(image: tuple[str, str]) -> np.ndarray | str:
        try:
            return classifier.prepare(read_image(image[0], classifier.reduced_side))
        except ImageError as error:
            reason = error.reason if isinstance(error, UnreadableImage) else "it is away, perhaps with its folder"
            return f"{printable(image[0])} ({reason})"

    parts = [named[start : start + size] for start in range(0, len(named), size)]
    with ThreadPoolExecutor(count_cpus()) as pool:
        coming = pool.map(read, named[:size])
        for part, following in zip(parts, [*parts[1:], []], strict=False):
            images, coming = list(coming), pool.map(read, following)
            unreadable += [image for image in images if isinstance(image, str)]
            names = [name for (_, name), image in zip(part, images, strict=True) if not isinstance(image, str)]
            if names:
                yield names, [image for image in images if not isinstance(image, str)]


def _write_csv(file: TextIO, classes: tuple[str, ...], top_k: int | None) -> Write:
    writer = csv.writer(file)
    if top_k is None:
        writer.writerow(["file", "label", "probability", *(f"probability_{name}" for name in classes)])
    else:
        more = (f"{column}_{rank}" for rank in range(2, top_k + 1) for column in ("label", "probability"))
        writer.writerow(["file", "label", "probability", *more])

    def write(name: str, row: np.ndarray) -> None:
        shares = [f"{share:.{DIGITS}f}" for share in row]
        best = rank_classes(row)[: top_k or 1]
        cells = [cell for index in best for cell in (classes[index], shares[index])]
        writer.writerow([name, *cells, *(shares if top_k is None else [])])

    return write


def _write_json(file: TextIO, classes: tuple[str, ...], top_k: int | None) -> Write:
    def write(name: str, row: np.ndarray) -> None:
        file.write(json.dumps({"file": name, **describe(row, classes, top_k)}) + "\n")

    return write


def describe(row: np.ndarray, classes: tuple[str, ...], top_k: int | None = None) -> dict[str, object]:
    """The label of an image, its probability, and the probabilities of the classes, highest first, as JSON has them."""
    shares = {classes[index]: round(float(row[index]), DIGITS) for index in rank_classes(row)[:top_k]}
    label = next(iter(shares))
    return {"label": label, "probability": shares[label], "probabilities": shares}


def rank_classes(row: np.ndarray) -> list[int]:
    """The numbers of the classes by their probability, highest first; equal ones stay in order."""
    return np.argsort(-row, kind="stable").tolist()
