"""Gradient accumulation: one optimizer step for the images of several forward passes."""

from __future__ import annotations

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup


class Accumulation(Technique):
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
