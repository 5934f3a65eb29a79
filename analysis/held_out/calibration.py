"""Whether probabilities mean what they say, and one temperature that mends most of it (Guo et al. 2017, section 4.2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

BINS = 15
_RANGE = (0.05, 20.0)  # of temperatures: validation without a mistake would ask for 0


@dataclass(frozen=True)
class Calibration:
    """`ece`: 15 bins, L1; `brier`: summed over classes, 0 to 2; `nll` in nats."""

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
    """Of logits (N, classes) and labels (N,)."""
    probabilities = softmax(logits.astype(np.float64), axis=1)
    truth = np.eye(logits.shape[1])[labels]
    gaps = [share * abs(right - sure) for share, right, sure in _bins(probabilities, labels)]
    return Calibration(float(sum(gaps)), float(((probabilities - truth) ** 2).sum(axis=1).mean()), _nll(logits, labels))


def reliability(logits: np.ndarray, labels: np.ndarray) -> list[dict[str, float]]:
    """Per bin of confidence that is not empty: its share of images, their accuracy and mean confidence."""
    bins = _bins(softmax(logits.astype(np.float64), axis=1), labels)
    return [{"share": share, "accuracy": right, "confidence": sure} for share, right, sure in bins]


def compare_temperatures(logits: np.ndarray, labels: np.ndarray, temperature: float) -> dict[str, dict[str, float]]:
    """Calibration as the model is, and with its logits divided by the temperature."""
    return {
        "before": asdict(measure_calibration(logits, labels)),
        "after": asdict(measure_calibration(logits / temperature, labels)),
    }


def _bins(probabilities: np.ndarray, labels: np.ndarray) -> list[tuple[float, float, float]]:
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    # A confidence on an edge belongs to the bin below, as in the paper's (m-1)/M, m/M].
    numbers = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return [
        (float(inside.mean()), float(right[inside].mean()), float(confidence[inside].mean()))
        for number in range(BINS)
        if (inside := numbers == number).any()
    ]


def _nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels].mean())
