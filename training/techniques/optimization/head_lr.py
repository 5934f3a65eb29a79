"""Head rate: the new head learns faster than the pretrained backbone (Long et al. 2015, section 4.1)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class HeadLr(Technique):
    interactions: ClassVar[str] = (
        "The head gets the base rate, which the schedule changes and the lr metric shows, and everything below it the base "
        "rate divided by the factor. With layer_decay each layer's rate is divided by the factor too."
    )
    needs_trained_backbone: ClassVar[str] = "factor"
    examples: ClassVar[Examples] = ({"head_lr": {"factor": 10.0}},)

    factor: float = Field(1.0, ge=1, le=1e6, description="Learning rate of the head, divided by that of the rest.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.stages import head_of

        below = set(setup.model.parameters()) - set(head_of(setup.model).parameters())
        setup.scale_rates(dict.fromkeys(below, 1 / self.factor))
