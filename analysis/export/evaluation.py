"""Score an export on labelled images: a folder with one subfolder per class."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from analysis.export.classifier import ExportedClassifier, load_classifier
from analysis.export.prediction import Options, classify_files
from analysis.held_out.score_page import draw_worst
from analysis.held_out.scoring import Score, score_labels
from training.data.files.decode import read_image
from training.data.files.listing import find_files, has_class_folders, list_subfolders
from training.data.preprocessing.transform import normalise
from training.errors import UserError, printable

SMALLEST = 1e-30  # in place of a probability of 0, whose logarithm is infinite
NAMED = 5  # classes in a sentence


@dataclass(frozen=True)
class Evaluation:
    """The score of an export on a folder; `unreadable` describes the files that could not be read, `worst` is a PNG."""

    classes: tuple[str, ...]
    score: Score
    unreadable: list[str]
    worst: bytes = field(repr=False)


def evaluate_folder(export: Path, folder: Path, options: Options) -> Evaluation:
    """Score an export on `folder/<class>/…`; the names of the subfolders are those of the model's classes."""
    classifier = load_classifier(export, options.form, options.device)
    named = list_labelled(folder, classifier.classes)
    unreadable: list[str] = []
    names: list[str] = []
    rows: list[np.ndarray] = []
    for some, probabilities in classify_files(named, classifier, options.batch_size, unreadable):
        names += some
        rows.append(probabilities)
    if not names:
        raise UserError(f"{folder}: none of its {len(named)} images can be read: {'; '.join(unreadable[:3])}.")
    labels = np.array([classifier.classes.index(name.partition(os.sep)[0]) for name in names])
    score = score_labels(np.log(np.concatenate(rows).clip(SMALLEST)), labels, classifier.classes)
    worst = [names[error["position"]] for error in score["worst"]]
    for error, name in zip(score["worst"], worst, strict=True):
        error["file"] = printable(name)
    picture = _draw([str(folder / name) for name in worst], score, classifier)
    return Evaluation(classifier.classes, score, unreadable, picture)


def _draw(paths: list[str], score: Score, classifier: ExportedClassifier) -> bytes:
    if not paths:
        return b""
    preprocessing = classifier.recipe.evaluation_preprocessing
    pixels = np.stack([classifier.prepare(read_image(path, classifier.reduced_side)) for path in paths])
    return draw_worst(normalise(pixels, preprocessing), score["worst"], classifier.classes, preprocessing)


def list_labelled(folder: Path, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """The path of each image in the folders of the classes, with its name relative to `folder`."""
    root = str(folder)
    if not folder.is_dir():
        raise UserError(f"{printable(root)}: no such folder. Name one that has a subfolder for each class.")
    found = {name: paths for name in list_subfolders(root) if (paths := find_files(os.path.join(root, name))[0])}
    known = ", ".join(map(repr, classes[:NAMED])) + (", …" if len(classes) > NAMED else "")
    if not found:
        raise UserError(
            f"{printable(root)}: no subfolder with images. It needs one for each class of the model: {known}. "
            "For images without labels there is sweep predict."
        )
    if unknown := sorted(set(found) - set(classes)):
        parts = [name for name in unknown if has_class_folders(os.path.join(root, name))]
        close = get_close_matches(unknown[0], classes, 1)
        advice = "Rename or remove the folder."
        if parts:
            advice = f"Name the part to score: {printable(os.path.join(root, parts[-1]))}."
        elif close:
            advice = f"Did you mean {close[0]!r}? Rename the folder."
        raise UserError(
            f"{printable(root)}: its subfolder {printable(repr(unknown[0]))} is no class of the model; "
            f"those are {known}. {advice}"
        )
    return [(path, os.path.relpath(path, root)) for paths in found.values() for path in paths]


def find_confusions(evaluation: Evaluation, most: int = 5) -> list[tuple[str, str, int]]:
    """The most frequent mistakes: true class, predicted class and number of images."""
    table, classes = np.array(evaluation.score["confusion"], dtype=int), evaluation.classes
    if not table.size:  # there is none with very many classes
        return []
    np.fill_diagonal(table, 0)
    places = np.argsort(-table, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(places, table.shape), strict=True)
    return [(classes[true], classes[guess], int(table[true, guess])) for true, guess in pairs if table[true, guess]]
