"""Scores on the test part: accuracy, confusion, recall of each class, calibration and the worst errors."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from scipy.special import softmax
from sklearn.metrics import confusion_matrix

from analysis.effects.intervals import share_interval
from analysis.held_out.calibration import Bin, compare_temperatures, fit_temperature, reliability

WORST = 24

Predicted = tuple[np.ndarray, np.ndarray]  # logits (N, classes), labels (N,)


class Share(TypedDict):
    """A share from 0 to 1, with its 95 % interval."""

    mean: float
    low: float
    high: float


# The key `class` is a Python keyword, so this type cannot be written as a class.
Recall = TypedDict("Recall", {"class": str, "images": int, "found": int, "interval": Share | None})


class WorstError(TypedDict):
    """A mistake: the image's position in the test part, its label, and the predicted class with its probability."""

    position: int
    label: int
    predicted: int
    probability: float


class TestScore(TypedDict):
    """The score on the test part, in the form in which the ledger and an export's summary store it.

    `confusion` has a row for each true class and a column for each predicted one.
    """

    images: int
    correct: int
    accuracy: Share
    confusion: list[list[int]]
    recall: list[Recall]
    temperature: float
    calibration: dict[str, dict[str, float]]
    reliability: dict[str, list[Bin]]
    worst: list[WorstError]


def score_test(val: Predicted, test: Predicted, classes: tuple[str, ...]) -> TestScore:
    """Score a model on the test part, whose images influenced no choice.

    Args:
        val: The predictions on the validation part; the temperature is fitted to them.
        test: The predictions on the test part.
        classes: The names of the classes.
    """
    logits, labels = test
    table = confusion_matrix(labels, logits.argmax(axis=1), labels=range(len(classes)))
    correct = int(np.trace(table))
    temperature = fit_temperature(*val)
    return {
        "images": len(labels),
        "correct": correct,
        "accuracy": _share(correct, len(labels)),
        "confusion": table.tolist(),
        "recall": [
            _recall(name, int(row[label]), int(row.sum()))
            for label, (name, row) in enumerate(zip(classes, table, strict=True))
        ],
        "temperature": temperature,
        "calibration": compare_temperatures(logits, labels, temperature),
        "reliability": {
            "before": reliability(logits, labels),
            "after": reliability(logits / temperature, labels),
        },
        "worst": _worst(logits, labels),
    }


def _recall(name: str, found: int, images: int) -> Recall:
    """The recall of a class. In a test part that the user made, a class can have no image."""
    return {"class": name, "images": images, "found": found, "interval": _share(found, images) if images else None}


def _share(count: int, total: int) -> Share:
    found = share_interval(count, total)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def _worst(logits: np.ndarray, labels: np.ndarray) -> list[WorstError]:
    """The mistakes with the highest probabilities, the highest first."""
    probabilities = softmax(logits.astype(np.float64), axis=1)
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    order = wrong[np.argsort(-probabilities[wrong, predicted[wrong]], kind="stable")][:WORST]
    return [
        {
            "position": int(i),
            "label": int(labels[i]),
            "predicted": int(predicted[i]),
            "probability": float(probabilities[i, predicted[i]]),
        }
        for i in order
    ]
