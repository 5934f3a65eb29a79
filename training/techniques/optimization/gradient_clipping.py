"""Gradient clipping: bound the gradient before each step (Pascanu et al. 2013, algorithm 1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class GradientClipping(Technique):
    interactions: ClassVar[str] = (
        "It lets sgd and its kin bear a higher learning rate; Adam's kin bounds its steps already. The whole group's "
        "gradient is clipped under accumulation, and unscaled first under 16-mixed."
    )

    value: float = Field(0.0, ge=0, description="Largest norm, or largest absolute entry; 0 clips nothing.")
    algorithm: Literal["norm", "value"] = Field("norm", description="What is bounded: the norm, or each entry.")

    def apply(self, setup: TrainingSetup) -> None:
        setup.set_trainer(gradient_clip_val=self.value, gradient_clip_algorithm=self.algorithm)

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.value == 0 and self.algorithm != "norm":
            return "gradient_clipping.algorithm=value does nothing while gradient_clipping.value is 0: set a value."
        return None
