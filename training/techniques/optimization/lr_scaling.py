"""Learning-rate scaling: the rate follows the effective batch, by a rule (Goyal et al. 2017, section 2.1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import MOST, RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.techniques.optimization.optimizer import BaseOptimizer

REFERENCE = 256


class LrScaling(Technique):
    interactions: ClassVar[str] = (
        "It lets batch_size and accumulation be searched without moving the best optimizer.lr along. linear fits sgd and its "
        "kin, sqrt the adaptive kinds (Malladi et al. 2022). The lr metric shows the scaled rate. Under accumulation.schedule "
        "the effective batch is the first epoch's: there the batch grows instead of the rate falling."
    )

    rule: Literal["none", "linear", "sqrt"] = Field(
        "none", description="optimizer.lr times the effective batch over the reference, or the root of that."
    )
    reference: int = Field(
        REFERENCE, ge=1, le=MOST, description="Effective batch, in images, at which optimizer.lr is meant."
    )

    def apply(self, setup: TrainingSetup) -> None:
        batches = setup.batches_per_step(0) if setup.batches_per_step else 1
        ratio = setup.batch_sizes[0] * batches / self.reference
        setup.lr_factor = ratio if self.rule == "linear" else ratio**0.5

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.rule == "none" and self.reference != REFERENCE:
            return f"lr_scaling.reference={self.reference} does nothing while lr_scaling.rule is none: set a rule."
        lr = recipe.part(BaseOptimizer).lr
        if self.is_on and isinstance(lr, str):
            return (
                f"lr_scaling.rule={self.rule} scales a number, and optimizer.lr={lr} is found at the very "
                "batch that it trains with: set rule=none."
            )
        return None
