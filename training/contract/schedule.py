"""Schedule: the learning rate of each optimizer step, after a linear warm-up (Loshchilov & Hutter 2017, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field

from training.contract.part import Part
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import torch


START_FACTOR = 1e-4

Curve = Callable[[int], float]  # completed optimizer steps -> factor on lr for the next one


class Schedule(Part):
    """The warm-up, which every schedule has."""

    interactions: ClassVar[str] = (
        "It multiplies the optimizer's lr and spans the whole training: a trial that is stopped early has trained with its "
        "beginning only. With a warm-up of one epoch, the first rung mostly compares learning rates."
    )

    name: str
    warmup_epochs: float = Field(0.0, ge=0, description="Length of the linear warm-up; 0: start at the full rate.")
    start_factor: float = Field(
        START_FACTOR, gt=0, le=1, description="Factor on lr at the start of the warm-up.", examples=[0.3]
    )

    def build(
        self, optimizer: torch.optim.Optimizer, epoch_steps: Sequence[int]
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Build the schedule; `epoch_steps` are the optimizer steps of each epoch."""
        from torch.optim.lr_scheduler import LambdaLR

        return LambdaLR(optimizer, self.curve(epoch_steps))

    def curve(self, epoch_steps: Sequence[int]) -> Curve:
        """Return the factor on lr after each optimizer step, a function of the step alone."""
        total = sum(epoch_steps)
        warmup = self.warmup_steps(epoch_steps)
        after = self.after_warmup(total - warmup, warmup)

        def factor(step: int) -> float:
            if step < warmup:
                return self.start_factor + (1 - self.start_factor) * step / warmup
            return after(min(step, total) - warmup)

        return factor

    def warmup_steps(self, epoch_steps: Sequence[int]) -> int:
        """Return the optimizer steps of the warm-up: at least one, so that a short warm-up is not silently dropped."""
        if not self.warmup_epochs:
            return 0
        return min(max(1, round(count_steps(self.warmup_epochs, epoch_steps))), sum(epoch_steps) - 1)

    def after_warmup(self, steps: int, warmup: int) -> Curve:
        """Return the factor on lr for each of the `steps` after a warm-up of `warmup` steps, counted from its end."""
        raise NotImplementedError(f"{type(self).__name__}.after_warmup")

    @property
    def cycle_count(self) -> int:
        """The number of descents to a minimum after which the rate rises again; 0: it has no such cycles."""
        return 0

    def minima(self, epoch_steps: Sequence[int]) -> list[int]:
        """Return the optimizer steps at which a cycle ends, counted from the start of the training."""
        return []

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.warmup_epochs >= recipe.epochs:
            return (
                f"schedule.warmup_epochs={self.warmup_epochs:g} leaves nothing of epochs={recipe.epochs} to train at "
                "the full rate: shorten the warm-up."
            )
        if self.warmup_epochs == 0 and self.start_factor != START_FACTOR:
            return "schedule.start_factor does nothing while schedule.warmup_epochs is 0: set warmup_epochs."
        return None

    def as_trained(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Self:
        return self.model_copy(update={"warmup_epochs": self.warmup_steps(epoch_steps)})


def count_steps(epochs: float, epoch_steps: Sequence[int]) -> float:
    """Return the optimizer steps in this many epochs, which may be a fraction."""
    whole = int(epochs)
    return sum(epoch_steps[:whole]) + (epochs - whole) * sum(epoch_steps[whole : whole + 1])
