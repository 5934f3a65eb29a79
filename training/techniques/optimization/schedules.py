"""Schedules: how the learning rate falls after the warm-up (Loshchilov & Hutter 2017, section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from training.contract.part import Examples
from training.contract.schedule import Curve, Schedule
from training.contract.view import RecipeView
from training.errors import UserError

FinalFactor = Annotated[float, Field(ge=0, lt=1, description="Factor on lr at the end of a descent.", examples=[0.5])]


class Constant(Schedule):
    examples: ClassVar[Examples] = ({"schedule": {"name": "constant", "warmup_epochs": 1.0}},)
    name: Literal["constant"] = "constant"

    def after_warmup(self, steps: int, warmup: int) -> Curve:
        return lambda step: 1.0


class Cosine(Schedule):
    examples: ClassVar[Examples] = ({"schedule": {"name": "cosine", "warmup_epochs": 1.0}},)
    name: Literal["cosine"] = "cosine"
    final_factor: FinalFactor = 0.0

    def after_warmup(self, steps: int, warmup: int) -> Curve:
        return lambda step: _descend(step / steps, self.final_factor)


class Linear(Schedule):
    """A straight descent (Defazio et al. 2023)."""

    examples: ClassVar[Examples] = ({"schedule": {"name": "linear", "warmup_epochs": 1.0}},)
    name: Literal["linear"] = "linear"
    final_factor: FinalFactor = 0.0

    def after_warmup(self, steps: int, warmup: int) -> Curve:
        return lambda step: 1 - (1 - self.final_factor) * step / steps


class Trapezoid(Schedule):
    """Warm-up, a constant rate, then a straight cool-down (Zhai et al. 2022; Hägele et al. 2024, section 3)."""

    interactions: ClassVar[str] = (
        "trapezoid has its gain in the cool-down: trials that are stopped before it are compared at the full rate."
    )
    examples: ClassVar[Examples] = ({"schedule": {"name": "trapezoid", "warmup_epochs": 1.0}},)

    name: Literal["trapezoid"] = "trapezoid"
    cooldown_fraction: float = Field(
        0.2, gt=0, lt=1, description="Share of the training in which the rate falls, at its end.", examples=[0.6]
    )
    final_factor: FinalFactor = 0.0

    def after_warmup(self, steps: int, warmup: int) -> Curve:
        decay = self.decay_steps(steps + warmup)  # a share of the whole training
        return lambda step: 1 - (1 - self.final_factor) * max(0, step - (steps - decay)) / decay

    def decay_steps(self, steps: int) -> int:
        return max(1, round(self.cooldown_fraction * steps))

    def as_trained(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Self:
        decay = self.decay_steps(sum(epoch_steps))
        return super().as_trained(recipe, epoch_steps).model_copy(update={"cooldown_fraction": decay})

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.warmup_epochs + self.cooldown_fraction * recipe.epochs > recipe.epochs:
            return (
                f"schedule.warmup_epochs={self.warmup_epochs:g} and schedule.cooldown_fraction="
                f"{self.cooldown_fraction:g} overlap in epochs={recipe.epochs}: shorten one of them."
            )
        return super().conflict(recipe)


class CosineRestarts(Schedule):
    examples: ClassVar[Examples] = ({"schedule": {"name": "cosine_restarts", "warmup_epochs": 1.0}},)
    name: Literal["cosine_restarts"] = "cosine_restarts"
    cycles: int = Field(
        2, ge=2, le=1000, description="Number of descents; a single one would be the plain cosine.", examples=[3]
    )
    cycle_factor: int = Field(
        1, ge=1, le=1000, description="Length of each cycle, divided by the length of the one before.", examples=[3]
    )
    final_factor: FinalFactor = 0.0

    def after_warmup(self, steps: int, warmup: int) -> Curve:
        # The fixed cycle lengths of CosineAnnealingWarmRestarts seldom add up to the length of the training, so the last
        # cycle would be cut. Here the lengths depend on the training, and the last cycle always ends at the minimum.
        ends = self.cycle_ends(steps)

        def factor(step: int) -> float:
            start = max([0, *(end for end in ends[:-1] if end <= step)])
            end = next((end for end in ends if end > step), steps)
            return _descend((step - start) / (end - start), self.final_factor)

        return factor

    @property
    def cycle_count(self) -> int:
        return self.cycles

    def minima(self, epoch_steps: Sequence[int]) -> list[int]:
        warmup = self.warmup_steps(epoch_steps)
        return [warmup + end for end in self.cycle_ends(sum(epoch_steps) - warmup)]

    def cycle_ends(self, steps: int) -> list[int]:
        """Return the optimizer step at which each cycle ends, counted from the end of the warm-up; the last is `steps`."""
        shares = [self.cycle_factor**i for i in range(self.cycles)]
        ends = [round(steps * sum(shares[: i + 1]) / sum(shares)) for i in range(self.cycles)]
        if len({0, *ends}) <= self.cycles:
            raise UserError(
                f"schedule.cycles={self.cycles} with cycle_factor={self.cycle_factor} does not fit into {steps} optimizer "
                "steps: lower one of them or train longer."
            )
        return ends


def _descend(share: float, final: float) -> float:
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share))
