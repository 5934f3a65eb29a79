"""Evaluation size: predict larger images than those of the training (Touvron et al. 2019, section 3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.specs import LARGEST_SIDE
from training.contract.technique import Technique


class EvaluationSize(Technique):
    interactions: ClassVar[str] = (
        "It changes no weight: validation, the scores and the exported model use images of the larger size, and the time of a "
        "prediction grows with its square. It suits random_crop resized, which shows objects larger in training than a "
        "centre crop does: 1.1 to 1.3 then shows them at the same size. Without such crops it usually costs accuracy. Small "
        "images lose most of it, because the last feature maps have few positions: digits of 32 or 64 pixels lost 24 to 81 "
        "points. Backbones with a fixed input size, such as most transformers, are refused."
    )
    examples: ClassVar[Examples] = ({"evaluation_size": {"factor": 1.25}},)
    changes_weights: ClassVar[bool] = False
    is_in_model: ClassVar[bool] = True

    factor: float = Field(
        1.0, ge=0.5, le=2.0, description="Side of the images in validation and prediction, divided by that in training."
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.stages import refuse_size

        setup.evaluated_size = self.scale(setup.image_size)
        refuse_size(setup.model, setup.evaluated_size, f"evaluation_size.factor={self.factor:g}")

    def scale(self, side: int) -> int:
        """Return the side of an image in an evaluation, in pixels; `side` is that in training."""
        return min(LARGEST_SIDE, round(side * self.factor))
