"""Averaging: validate, keep and export an average of the weights along the training (Izmailov et al. 2018, algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from training.contract.part import Examples
from training.contract.schedule import Curve, count_steps
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

Shares = Callable[[int], float]  # completed optimizer steps -> weight of the current weights in the average


class BaseAveraging(Technique):
    """The kinds of averaging; exactly one is in a recipe."""

    @property
    def is_on(self) -> bool:
        return not isinstance(self, NoAveraging)


class NoAveraging(BaseAveraging):
    name: Literal["none"] = "none"


class Swa(BaseAveraging):
    """Stochastic weight averaging: the mean of the weights at the ends of the last epochs, or at the minima of restarts."""

    interactions: ClassVar[str] = (
        "Either swa or ema can be on. swa has no effect before its start, so early rungs compare trials without it. Averaging "
        "helps with a high, constant rate (schedule constant, or lr_factor), and little at the end of a cosine. With "
        "cosine_restarts the minima are averaged, and the score does not change between two of them. With BatchNorm, each "
        "new mean of swa costs a forward pass over the training images, which counts as training time. ema averages from "
        "the first epoch on, so all rungs include it; the longer its half-life, the later it helps."
    )
    examples: ClassVar[Examples] = ({"averaging": {"name": "swa"}}, {"averaging": {"name": "swa", "lr_factor": 0.5}})

    name: Literal["swa"] = "swa"
    start: float = Field(
        0.75,
        gt=0,
        lt=1,
        description="Share of the training after which weights are averaged; at least two moments are.",
        examples=[0.25],
    )
    lr_factor: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Constant factor on lr from the start on; null: the schedule continues."
    )
    annealing_epochs: float = Field(
        0.0, ge=0, description="Length of the transition from the schedule's rate to lr_factor.", examples=[0.5]
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.weight_average import AveragingRate, WeightAverage

        setup.callbacks.append(WeightAverage(self.shares, refresh_batch_norm=True))
        if self.lr_factor is not None:
            setup.callbacks.append(AveragingRate(self.change_curve))

    def shares(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Shares:
        count = {step: number for number, step in enumerate(self.moments(recipe, epoch_steps), start=1)}
        return lambda step: 1 / count[step] if step in count else 0.0

    def moments(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> list[int]:
        """Return the optimizer steps after which the weights enter the mean; at least two, because one makes no average."""
        ends = recipe.schedule.minima(epoch_steps) or list(accumulate(epoch_steps))
        late = sum(end >= self._begin(epoch_steps) for end in ends)
        return ends[-max(2, late) :]

    def as_trained(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Self:
        is_rate = self.lr_factor is not None  # which begins at its own step
        first = math.ceil(self._begin(epoch_steps)) if is_rate else self.moments(recipe, epoch_steps)[0]
        return self.model_copy(update={"start": first})

    def _begin(self, epoch_steps: Sequence[int]) -> float:
        return count_steps(round(self.start * len(epoch_steps), 6), epoch_steps)

    def change_curve(self, curve: Curve, epoch_steps: Sequence[int]) -> Curve:
        """Return the factor on lr: the schedule's until the start, then half a cosine to `lr_factor`, which then stays."""
        assert self.lr_factor is not None
        target, start = self.lr_factor, math.ceil(self._begin(epoch_steps))
        length = self.annealing_epochs * sum(epoch_steps) / len(epoch_steps)

        def factor(step: int) -> float:
            if step < start:
                return curve(step)
            if step >= start + length:
                return target
            left = 0.5 * (1 + math.cos(math.pi * (step - start) / length))
            return target + (curve(start) - target) * left

        return factor

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.lr_factor is None and self.annealing_epochs:
            return "averaging.annealing_epochs does nothing without averaging.lr_factor: set it, or leave both out."
        if self.lr_factor is not None and recipe.schedule.cycle_count:
            return (
                f"averaging.lr_factor={self.lr_factor:g} would end the cycles of schedule.name={recipe.schedule.name}, whose "
                "minima are averaged: leave it out, or take schedule.name=constant."
            )
        if len(self.moments(recipe, [1000] * recipe.epochs)) < 2:
            return (
                f"averaging.name=swa has one moment to average in epochs={recipe.epochs}, and a mean of one is no average: "
                "train longer."
            )
        return None


class Ema(BaseAveraging):
    """Exponential moving average of the weights, whose half-life grows with training (Karras et al. 2024, section 3.1).

    With a fixed decay, the average would mostly consist of untrained weights early in a training.
    """

    name: Literal["ema"] = "ema"
    half_life: float = Field(
        0.05,
        gt=0,
        le=0.5,
        description="Latest share of the steps so far that has half of the weight; 0.5 is a plain mean.",
        examples=[0.2],
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.weight_average import WeightAverage

        # BatchNorm's statistics are averages already, and are averaged like the weights.
        setup.callbacks.append(WeightAverage(self.shares, refresh_batch_norm=False))

    def shares(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Shares:
        power = math.log(0.5) / math.log1p(-self.half_life)
        return lambda step: 1 - (1 - 1 / step) ** power


Averaging = Annotated[NoAveraging | Swa | Ema, Field(discriminator="name")]
