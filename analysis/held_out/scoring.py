"""The one look at the untouched test part: accuracy, confusion, recall of each class, calibration, the worst errors."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.metrics import confusion_matrix

from analysis.effects.intervals import share_interval
from analysis.held_out.calibration import compare_temperatures, fit_temperature, reliability

WORST = 24

Predicted = tuple[np.ndarray, np.ndarray]  # logits (N, classes), labels (N,)


def score_test(val: Predicted, test: Predicted, classes: tuple[str, ...]) -> dict[str, Any]:
    """What the model is worth on images that nothing was chosen by, as plain values; the temperature is validation's."""
    logits, labels = test
    table = confusion_matrix(labels, logits.argmax(axis=1), labels=range(len(classes)))
    correct = int(np.trace(table))
    temperature = fit_temperature(*val)
    return {
        "images": len(labels),
        "correct": correct,
        "accuracy": asdict(share_interval(correct, len(labels))),
        "confusion": table.tolist(),  # a row for each true class, a column for each predicted one
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


def _recall(name: str, found: int, images: int) -> dict[str, Any]:
    """A class may have no image in a test part that the user made."""
    interval = asdict(share_interval(found, images)) if images else None
    return {"class": name, "images": images, "found": found, "interval": interval}


def _worst(logits: np.ndarray, labels: np.ndarray) -> list[dict[str, Any]]:
    """The mistakes the model was surest of: position in the part, label, prediction and its probability."""
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
