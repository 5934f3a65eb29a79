"""The metrics of a validation: accuracies, loss, calibration, and the standard error of the score."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torchmetrics.functional.classification import binary_calibration_error, multiclass_f1_score

from training.score_metrics import MAXIMISED, SOFT

RESAMPLES = 100
LOW, HIGH, STEPS = -3, 5, 4  # logits are multiplied by factors from 2^LOW to 2^HIGH, so many in an octave
PLAIN = -LOW * STEPS  # the place of the factor 1

# Of N images: labels (N,), predicted classes (N,), probabilities of those (N,), cross-entropies (N, factors).
Columns = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Metric = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def measure(columns: Columns, class_count: int, score: str) -> tuple[dict[str, float], float]:
    """Return all metrics of N images by name, and the standard error of the one named `score`.

    `val_ece` is the expected calibration error of the predicted class: 15 bins, L1 (Guo et al. 2017, equation 3).
    """
    kinds = _kinds(class_count)
    metrics = {name: float(metric(*columns)) for name, metric in kinds.items()}
    return metrics, _standard_error(kinds[score], columns, score)


def judge(logits: torch.Tensor, labels: torch.Tensor) -> Columns:
    """Return the columns of N images that every metric is made of, from logits (N, classes) and labels (N,)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    confidence, predicted = logits.softmax(1).max(1)
    octaves = torch.arange(LOW, HIGH + 1 / STEPS, 1 / STEPS, device=logits.device)
    said = (logits[:, :, None] * 2**octaves).log_softmax(1)  # (N, classes, factors)
    return labels, predicted, confidence, -said.gather(1, labels[:, None, None].expand(-1, 1, len(octaves)))[:, 0]


def soften(losses: torch.Tensor) -> torch.Tensor:
    """Return how right each image is, between 0 and 1 (N,), from cross-entropies by the factor of the logits (N, factors).

    With p the probabilities at the temperature that fits these images best (Guo et al. 2017), it is p² of the right class
    over the sum of all p². The mean is close to the accuracy, but a narrow miss counts nearly as much as a narrow hit. So it
    tells models apart as accuracy does on twice as many images (docs/benchmarks.md).
    """
    means = losses[:, :-STEPS].double().mean(0)
    best = int(means.argmin())
    place = float(best + STEPS)
    if 0 < best < len(means) - 1:  # the lowest point of the parabola through three
        before, at, after = means[best - 1 : best + 2].tolist()
        place += (before - after) / (2 * (before - 2 * at + after)) if before + after > 2 * at else 0.0
    low = min(int(place), losses.shape[1] - 2)
    return (-torch.lerp(losses[:, low].double(), losses[:, low + 1].double(), place - low)).exp()


def _kinds(classes: int) -> dict[str, Metric]:
    return {
        "val_accuracy": lambda y, p, c, loss: (y == p).double().mean(),
        "val_balanced_accuracy": lambda y, p, c, loss: _balance((y == p).double(), y),
        "val_soft_accuracy": lambda y, p, c, loss: soften(loss).mean(),
        "val_soft_balanced_accuracy": lambda y, p, c, loss: _balance(soften(loss), y),
        "val_macro_f1": lambda y, p, c, loss: multiclass_f1_score(p, y, classes, average="macro", validate_args=False),
        "val_loss": lambda y, p, c, loss: loss[:, PLAIN].mean(),
        # This equals the multiclass error, which also bins the confidence of the predicted class alone.
        "val_ece": lambda y, p, c, loss: binary_calibration_error(c, (y == p).long(), n_bins=15, validate_args=False),
    }


def _balance(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean over the classes that occur of their means; torchmetrics counts a class without images as recall 0."""
    images = torch.bincount(labels)
    return (torch.bincount(labels, weights=values)[images > 0] / images[images > 0]).mean()


def _standard_error(metric: Metric, columns: Columns, score: str) -> float:
    """Return the error of the mean for metrics that are means, else a bootstrap over the images (Efron 1979).

    The error of shares of right images is that of Agresti & Coull (1998, section 2): with two right and two wrong images
    in addition, it is not 0 where all images are right, and nearly the binomial one elsewhere.
    """
    labels, predicted, _, losses = columns
    count, right = len(labels), labels == predicted
    values = soften(losses) if score in SOFT else right.double()
    error = float(torch.cat([values, values.new_tensor([1, 1, 0, 0])]).std(correction=0) / (count + 4) ** 0.5)
    if score in ("val_accuracy", "val_soft_accuracy"):
        return error
    if score == "val_loss":
        return float(losses[:, PLAIN].double().std(correction=0) / count**0.5)
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randint(count, (count,), generator=generator) for _ in range(RESAMPLES)]
    spread = float(torch.stack([metric(*(column[draw] for column in columns)) for draw in draws]).std())
    return error if right.all() and score in MAXIMISED else spread
