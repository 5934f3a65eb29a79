"""Gradient clipping: bound the gradient before each step (Pascanu et al. 2013, algorithm 1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView


class GradientClipping(Technique):
    interactions: ClassVar[str] = (
        "It allows a higher learning rate for sgd, momentum and nesterov; Adam and its variants bound their steps already. "
        "With accumulation the gradient of the whole group is clipped; with 16-mixed it is unscaled first."
    )
    examples: ClassVar[Examples] = ({"gradient_clipping": {"value": 1.0}},)

    value: float = Field(
        0.0, ge=0, description="Largest norm, or largest absolute value of an entry; 0: no clipping.", examples=[0.01]
    )
    algorithm: Literal["norm", "value"] = Field(
        "norm", description="Bound the norm of the gradient, or the value of each entry.", examples=["value"]
    )

    def apply(self, setup: TrainingSetup) -> None:
        setup.set_trainer(gradient_clip_val=self.value, gradient_clip_algorithm=self.algorithm)

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.value == 0 and self.algorithm != "norm":
            return "gradient_clipping.algorithm=value does nothing while gradient_clipping.value is 0: set a value."
        return None
