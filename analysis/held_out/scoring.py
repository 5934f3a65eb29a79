"""Scores on labelled images, such as the test split: accuracy, confusion, recall, calibration and the worst errors.

Temperature scaling improves the calibration (Guo et al. 2017, section 4.2).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.metrics import confusion_matrix

from analysis.effects.seed_intervals import share_interval

WORST = 24
# With more classes no confusion matrix is kept: nobody could read it, and it grows with their square.
MOST_CONFUSED = 1000
BINS = 15
_RANGE = (0.05, 20.0)  # Without a mistake in validation, the best temperature would be 0.

Predicted = tuple[np.ndarray, np.ndarray]  # logits (N, classes), labels (N,)


class Bin(TypedDict):
    """One bin of confidence: its share of images, their accuracy and their mean confidence, each from 0 to 1."""

    share: float
    accuracy: float
    confidence: float


Share = dict[str, float]  # `mean`, `low` and `high`: a share from 0 to 1, with its 95 % interval
Calibration = dict[str, float]  # `ece`: 15 bins, L1; `brier`: the sum over classes, 0 to 2; `nll`: in nats

# The key `class` is a Python keyword, so this type cannot be written as a class.
Recall = TypedDict("Recall", {"class": str, "images": int, "found": int, "interval": Share | None})


class WorstError(TypedDict):
    """A mistake: the image's position among those scored, its label, and the predicted class with its probability."""

    position: int
    label: int
    predicted: int
    probability: float
    file: NotRequired[str]


class Score(TypedDict):
    """The score on labelled images; the keys of `calibration` and `reliability` are "before" and "after" scaling.

    `confusion` has a row for each true class and a column for each predicted one; it is empty with more than 1,000 classes.
    """

    images: int
    correct: int
    accuracy: Share
    confusion: list[list[int]]
    recall: list[Recall]
    calibration: dict[str, Calibration]
    reliability: dict[str, list[Bin]]
    worst: list[WorstError]


class TestScore(Score):
    """The score on the test split, in the form in which the ledger and an export's summary store it."""

    temperature: float


def score_test(val: Predicted, test: Predicted, classes: tuple[str, ...]) -> TestScore:
    """Score a model on the test split, whose images influenced no choice. The temperature is fitted to validation."""
    logits, labels = test
    temperature = fit_temperature(*val)
    score = score_labels(logits, labels, classes)
    score["calibration"]["after"] = measure_calibration(logits / temperature, labels)
    score["reliability"]["after"] = reliability(logits / temperature, labels)
    return {**score, "temperature": temperature}


def score_labels(logits: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> Score:
    """Score logits (N, classes), or logarithms of probabilities, by labels (N,), without a temperature."""
    count, predicted = len(classes), logits.argmax(axis=1)
    is_small = count <= MOST_CONFUSED
    found = np.bincount(labels[predicted == labels], minlength=count)
    correct = int(found.sum())
    return {
        "images": len(labels),
        "correct": correct,
        "accuracy": asdict(share_interval(correct, len(labels))),
        "confusion": confusion_matrix(labels, predicted, labels=range(count)).tolist() if is_small else [],
        "recall": list(map(_recall, classes, found.tolist(), np.bincount(labels, minlength=count).tolist())),
        "calibration": {"before": measure_calibration(logits, labels)},
        "reliability": {"before": reliability(logits, labels)},
        "worst": _worst(logits, labels),
    }


def _recall(name: str, correct: int, images: int) -> Recall:
    """The recall of a class. In a test split that the user made, a class can have no image."""
    interval = asdict(share_interval(correct, images)) if images else None
    return {"class": name, "images": images, "found": correct, "interval": interval}


def _worst(logits: np.ndarray, labels: np.ndarray) -> list[WorstError]:
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


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The divisor of logits (N, classes) that makes the labels (N,) most likely."""
    result: Any = minimize_scalar(
        lambda log: _nll(logits / np.exp(log), labels), bounds=np.log(_RANGE), method="bounded"
    )
    return float(np.exp(result.x))


def measure_calibration(logits: np.ndarray, labels: np.ndarray) -> Calibration:
    """The calibration of logits (N, classes) against labels (N,)."""
    probabilities = softmax(logits.astype(np.float64), axis=1)
    of_label = probabilities[np.arange(len(labels)), labels]
    brier = (probabilities**2).sum(axis=1) - 2 * of_label + 1
    gaps = [share * abs(right - sure) for share, right, sure in _bins(probabilities, labels)]
    return {"ece": float(sum(gaps)), "brier": float(brier.mean()), "nll": _nll(logits, labels)}


def reliability(logits: np.ndarray, labels: np.ndarray) -> list[Bin]:
    """The bins of confidence that are not empty, from logits (N, classes) and labels (N,)."""
    bins = _bins(softmax(logits.astype(np.float64), axis=1), labels)
    return [{"share": share, "accuracy": right, "confidence": sure} for share, right, sure in bins]


def _bins(probabilities: np.ndarray, labels: np.ndarray) -> list[tuple[float, float, float]]:
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    # A confidence on an edge belongs to the bin below it: bins are ((m-1)/M, m/M], as in the paper.
    numbers = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return [
        (float(inside.mean()), float(right[inside].mean()), float(confidence[inside].mean()))
        for number in range(BINS)
        if (inside := numbers == number).any()
    ]


def _nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels].mean())
