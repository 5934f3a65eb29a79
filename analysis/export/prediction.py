"""Predict labels for images with an exported model; images are decoded and preprocessed as in its training."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from analysis.export.bundle import Exported, read_export
from analysis.export.writable import cannot_write
from training.data.files.decode import UnreadableImage, printable, read_image
from training.data.pipelines.datasets import GAP
from training.data.preprocessing.transform import fit, normalise, resized_side
from training.data.sources.listing import EXTENSIONS, find_files
from training.errors import UserError
from training.recipe import Recipe

BATCH = 64


def predict_images(export: Path, images: Path, out: Path) -> tuple[int, list[str]]:
    """Write a CSV with a line for each image.

    Args:
        export: The folder of the export.
        images: A folder of images, or one image. Paths in the CSV are relative to the folder.
        out: The CSV file. Only one batch of images at a time is in memory.

    Returns:
        The number of images with a label, and a description of each file that could not be read.

    Raises:
        UserError: There is no such export or no image, or the CSV cannot be written.
    """
    paths, folder = _list_images(images)
    exported = read_export(export)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return _write_table(exported, paths, folder, out)
    except OSError as error:
        raise cannot_write("--out", out, error) from None


def _write_table(exported: Exported, paths: list[str], folder: Path, out: Path) -> tuple[int, list[str]]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, count = exported.model.to(device), 0
    unreadable: list[str] = []
    # File names that are not valid text keep their bytes.
    with out.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "label", "probability", *(f"probability_{name}" for name in exported.classes)])
        for names, pixels in _batches(paths, exported.recipe, unreadable):
            with torch.inference_mode():
                probabilities = model(pixels.to(device)).double().softmax(1).cpu().numpy()
            for name, row in zip(names, probabilities, strict=True):
                best = int(row.argmax())
                shares = [f"{share:.6f}" for share in row]
                writer.writerow([os.path.relpath(name, folder), exported.classes[best], shares[best], *shares])
            count += len(names)
    return count, unreadable


def _list_images(images: Path) -> tuple[list[str], Path]:
    """The images, and the folder that their names are relative to."""
    if images.is_dir():
        if paths := find_files(str(images))[0]:
            return paths, images
        raise UserError(f"{printable(str(images))}: no image in it (files that end in {', '.join(EXTENSIONS)}).")
    if not images.exists():
        raise UserError(f"{printable(str(images))}: no such folder or image.")
    return [str(images)], images.parent


def _batches(paths: list[str], recipe: Recipe, unreadable: list[str]) -> Iterator[tuple[list[str], torch.Tensor]]:
    """Batches of names and images, float32 (N, 3, side, side); unreadable files are added to `unreadable`."""
    preprocessing = recipe.evaluation_preprocessing
    for start in range(0, len(paths), BATCH):
        names, pixels = [], []
        for path in paths[start : start + BATCH]:
            try:
                pixels.append(fit(read_image(path, GAP * resized_side(preprocessing)), preprocessing))
                names.append(path)
            except UnreadableImage as error:
                unreadable.append(f"{printable(path)} ({error.reason})")
        if names:
            yield names, normalise(np.stack(pixels), preprocessing)
