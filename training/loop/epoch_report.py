"""The report of an epoch, and the outcome of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from training.recipe import Recipe


@dataclass(frozen=True)
class Report:
    """The results of one epoch.

    `score` is the best validation value so far, with its `standard_error`, and `best_epoch` the epoch that reached it.
    `steps` holds points of (optimizer step, learning rate, training loss); `time` is in seconds since 1970.
    """

    epoch: int
    metrics: dict[str, float]
    score: float
    standard_error: float
    best_epoch: int
    steps: list[tuple[int, float, float]]
    time: float


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `recipe` is resolved: it contains no `auto`."""

    state: Literal["completed", "stopped", "diverged"]
    recipe: Recipe
    classes: tuple[str, ...]
    reports: list[Report] = field(default_factory=list)
