"""Learning-rate scaling: scale the rate with the effective batch (Goyal et al. 2017, section 2.1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import MOST, Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

REFERENCE = 256


class LrScaling(Technique):
    interactions: ClassVar[str] = (
        "batch_size and accumulation can be searched without a change of the best optimizer.lr. linear suits sgd, momentum and "
        "nesterov; sqrt suits adaptive optimizers (Malladi et al. 2022). The lr metric shows the scaled rate. With "
        "accumulation.schedule the effective batch of the first epoch counts, as there the batch grows instead of a falling "
        "rate."
    )
    examples: ClassVar[Examples] = ({"lr_scaling": {"rule": "linear", "reference": 64}},)

    rule: Literal["none", "linear", "sqrt"] = Field(
        "none",
        description="Multiply optimizer.lr by effective batch / reference (linear) or its square root (sqrt).",
        examples=["sqrt"],
    )
    reference: int = Field(
        REFERENCE, ge=1, le=MOST, description="Effective batch, in images, at which optimizer.lr applies unscaled."
    )

    def apply(self, setup: TrainingSetup) -> None:
        batches = setup.batches_per_step(0) if setup.batches_per_step else 1
        # An epoch may have fewer batches than a step wants; then all of its images are one step.
        ratio = sum(setup.batch_sizes[:batches]) / self.reference
        setup.lr_factor = ratio if self.rule == "linear" else ratio**0.5

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.rule == "none" and self.reference != REFERENCE:
            return f"lr_scaling.reference={self.reference} does nothing while lr_scaling.rule is none: set a rule."
        lr = recipe.optimizer.lr
        if self.is_on and isinstance(lr, str):
            return (
                f"lr_scaling.rule={self.rule} scales a number, and optimizer.lr={lr} is found with the "
                "batch size of the training already: set rule=none."
            )
        return None
