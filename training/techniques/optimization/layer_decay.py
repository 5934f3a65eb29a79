"""Layer-wise lr decay: layers further from the head get a lower learning rate (Clark et al. 2020, section 3.2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class LayerDecay(Technique):
    interactions: ClassVar[str] = (
        "The head gets the base rate, which the schedule changes and the lr metric shows. It suits pretrained weights with "
        "most of the backbone training, and is a soft form of unfreeze; with lora it applies to the adapters too. A layer is "
        "a block in timm's models and a stage in torchvision's, so the same factor has less effect in torchvision's."
    )
    needs_trained_backbone: ClassVar[str] = "factor"
    examples: ClassVar[Examples] = ({"layer_decay": {"factor": 0.8}},)

    factor: float = Field(1.0, gt=0, le=1, description="Learning rate of a layer, divided by that of the layer above.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.stages import layers_of

        layers = layers_of(setup.model)
        top = max(layers.values())
        setup.scale_rates({parameter: self.factor ** (top - layer) for parameter, layer in layers.items()})
