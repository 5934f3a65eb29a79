"""Layer-wise lr decay: the further a layer from the head, the lower its learning rate (Clark et al. 2020, section 3.2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.techniques.model.unfreeze import Unfreeze


class LayerDecay(Technique):
    interactions: ClassVar[str] = (
        "The base rate is the head's, and what the schedule and the lr metric speak of. It goes with pretrained weights and "
        "much of the backbone training: a soft form of unfreeze. timm counts blocks as layers, torchvision's models are "
        "counted by stages here, so a factor weighs less there."
    )

    factor: float = Field(1.0, gt=0, le=1, description="Learning rate of a layer over that of the layer above it.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.stages import layers_of

        layers = layers_of(setup.model)
        top = max(layers.values())
        setup.lr_shares = {parameter: self.factor ** (top - layer) for parameter, layer in layers.items()}

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.is_on and recipe.part(Unfreeze).deepest == "last":
            return (
                f"layer_decay.factor={self.factor:g} does nothing while unfreeze.level=last trains the head alone: "
                "set another level, or factor=1.0."
            )
        return None
