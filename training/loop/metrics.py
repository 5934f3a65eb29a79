"""The metrics of a validation: three accuracies, loss, calibration, and the standard error of the score."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torchmetrics.functional.classification import binary_calibration_error, multiclass_f1_score

RESAMPLES = 100

Metric = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def measure(
    labels: torch.Tensor,
    predicted: torch.Tensor,
    confidence: torch.Tensor,
    losses: torch.Tensor,
    class_count: int,
    score: str,
) -> tuple[dict[str, float], float]:
    """Compute all metrics of N images.

    `val_ece` is the expected calibration error of the predicted class: 15 bins, L1 (Guo et al. 2017, equation 3).

    Args:
        labels: The true classes (N,).
        predicted: The predicted classes (N,).
        confidence: The probability of each predicted class (N,).
        losses: The cross-entropy of each image (N,).
        class_count: The number of classes.
        score: The name of the metric whose standard error is wanted.

    Returns:
        The metrics by name, and the standard error of `score`.
    """
    kinds = _kinds(class_count)
    columns = (labels, predicted, confidence, losses)
    metrics = {name: float(kind(*columns)) for name, kind in kinds.items()}
    return metrics, _standard_error(kinds[score], columns, score)


def _kinds(classes: int) -> dict[str, Metric]:
    return {
        "val_accuracy": lambda y, p, c, loss: (y == p).double().mean(),
        "val_balanced_accuracy": lambda y, p, c, loss: _balanced_accuracy(y, p, classes),
        "val_macro_f1": lambda y, p, c, loss: multiclass_f1_score(p, y, classes, average="macro", validate_args=False),
        "val_loss": lambda y, p, c, loss: loss.mean(),
        # This equals the multiclass error, which also bins the confidence of the predicted class alone.
        "val_ece": lambda y, p, c, loss: binary_calibration_error(c, (y == p).long(), n_bins=15, validate_args=False),
    }


def _balanced_accuracy(labels: torch.Tensor, predicted: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the mean recall of the classes that occur; torchmetrics counts a class without images as recall 0."""
    images = torch.bincount(labels, minlength=classes)
    found = torch.bincount(labels[labels == predicted], minlength=classes)
    return (found[images > 0].double() / images[images > 0]).mean()


def _standard_error(kind: Metric, columns: tuple[torch.Tensor, ...], score: str) -> float:
    """Return the error of the mean for metrics that are means, else a bootstrap over the images (Efron 1979)."""
    labels, predicted, _, losses = columns
    count = len(labels)
    if score in ("val_accuracy", "val_loss"):
        values = (labels == predicted).double() if score == "val_accuracy" else losses.double()
        return float(values.std(correction=0) / count**0.5)
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randint(count, (count,), generator=generator) for _ in range(RESAMPLES)]
    return float(torch.stack([kind(*(column[draw] for column in columns)) for draw in draws]).std())
