"""The calibration of probabilities, and temperature scaling, which improves it (Guo et al. 2017, section 4.2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

BINS = 15


class Bin(TypedDict):
    """One bin of confidence: its share of images, their accuracy and their mean confidence, each from 0 to 1."""

    share: float
    accuracy: float
    confidence: float


_RANGE = (0.05, 20.0)  # Without a mistake in validation, the best temperature would be 0.


@dataclass(frozen=True)
class Calibration:
    """`ece`: 15 bins, L1; `brier`: the sum over classes, 0 to 2; `nll`: in nats."""

    ece: float
    brier: float
    nll: float


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The divisor of logits (N, classes) that makes the labels (N,) most likely."""
    result: Any = minimize_scalar(
        lambda log: _nll(logits / np.exp(log), labels), bounds=np.log(_RANGE), method="bounded"
    )
    return float(np.exp(result.x))


def measure_calibration(logits: np.ndarray, labels: np.ndarray) -> Calibration:
    """The calibration of logits (N, classes) against labels (N,)."""
    probabilities = softmax(logits.astype(np.float64), axis=1)
    truth = np.eye(logits.shape[1])[labels]
    gaps = [share * abs(right - sure) for share, right, sure in _bins(probabilities, labels)]
    return Calibration(float(sum(gaps)), float(((probabilities - truth) ** 2).sum(axis=1).mean()), _nll(logits, labels))


def reliability(logits: np.ndarray, labels: np.ndarray) -> list[Bin]:
    """The bins of confidence that are not empty, from logits (N, classes) and labels (N,)."""
    bins = _bins(softmax(logits.astype(np.float64), axis=1), labels)
    return [{"share": share, "accuracy": right, "confidence": sure} for share, right, sure in bins]


def compare_temperatures(logits: np.ndarray, labels: np.ndarray, temperature: float) -> dict[str, dict[str, float]]:
    """The calibration before and after the logits (N, classes) are divided by the temperature."""
    return {
        "before": asdict(measure_calibration(logits, labels)),
        "after": asdict(measure_calibration(logits / temperature, labels)),
    }


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
