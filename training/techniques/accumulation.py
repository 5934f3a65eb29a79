"""Gradient accumulation: one optimizer step for the images of several forward passes (Ott et al. 2018)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup


class Accumulation(Technique):
    interactions: ClassVar[str] = (
        "The effective batch is batch_size × batches, so the best learning rate moves with it; BatchNorm still sees "
        "batch_size images at a time. There are fewer optimizer steps, so schedules and averages have fewer to work with."
    )

    batches: int = Field(1, ge=1, description="Forward passes per optimizer step.")

    def apply(self, setup: TrainingSetup) -> None:
        setup.batches_per_step = self.batches
        setup.loss_weights = weigh_batches(setup.batch_sizes, self.batches)
        setup.set_trainer(accumulate_grad_batches=self.batches)


def weigh_batches(batch_sizes: tuple[int, ...], batches: int) -> tuple[float, ...]:
    """Weights that turn Lightning's sum of mean losses / k into the mean over the images of each group.

    Lightning divides by k in the last, partial group too, which would shrink that step.
    """
    weights: list[float] = []
    for start in range(0, len(batch_sizes), batches):
        group = batch_sizes[start : start + batches]
        weights += [size * batches / sum(group) for size in group]
    return tuple(weights)
