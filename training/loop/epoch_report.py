"""The report of an epoch, and the outcome of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from training.recipe import Recipe

LOGGED = ("train_loss", "val_loss", "train_accuracy", "val_accuracy", "lr")
Kept = Literal["best", "last"]  # the epoch whose weights are kept, and whose validation value is the score
Answers = tuple[tuple[int, ...], str]  # `labels` and `probabilities` of a report


@dataclass(frozen=True)
class Report:
    """The results of one epoch.

    `score` is the validation value of the epoch whose weights are kept, with its `standard_error`: `best_epoch`, the best
    epoch so far, or this one where the last is kept.
    `steps` holds points of (optimizer step, learning rate, training loss); `time` is in seconds since 1970.
    The last report has what the kept weights say of the validation images, unless these are many: their `labels`, and for
    each the `probabilities` of the classes, a byte each, as hexadecimal digits.
    """

    epoch: int
    metrics: dict[str, float]
    score: float
    standard_error: float
    best_epoch: int
    steps: list[tuple[int, float, float]]
    time: float
    labels: tuple[int, ...] = ()
    probabilities: str = ""


def describe_epoch(report: Report, epochs: int) -> str:
    """Return one line for the log: the metrics of an epoch, those that say most first, and the seconds until now."""
    metrics = report.metrics
    others = [name for name in metrics if name.startswith("val_") and name not in LOGGED]
    texts = [f"{name} {metrics[name]:.4g}" for name in (*LOGGED, *others) if name in metrics]
    seconds = sum(value for name, value in metrics.items() if name.endswith("_seconds"))
    best = "" if report.best_epoch == report.epoch else f", the best epoch is still {report.best_epoch}"
    return f"Epoch {report.epoch} of {epochs}: {', '.join(texts)}; {seconds:.1f} s since the start{best}."


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `recipe` is resolved: it contains no `auto`."""

    state: Literal["completed", "stopped", "diverged"]
    recipe: Recipe
    classes: tuple[str, ...]
    reports: list[Report] = field(default_factory=list)
