"""MixUp: train on convex combinations of pairs of images and of their targets (Zhang et al. 2018, equation 1)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.techniques.data.partners import refuse_single


class MixUp(Technique):
    interactions: ClassVar[str] = (
        "With cutmix or fmix on too, each batch gets one of them. With label smoothing the targets are blurred twice. It "
        "slows learning, so it gains with many epochs and loses with few, and where only the head trains."
    )

    alpha: float = Field(0.0, ge=0, description="λ ~ Beta(α, α), drawn once per batch.")

    def apply(self, setup: TrainingSetup) -> None:
        from torchvision.transforms import v2

        # Pairs each image with its neighbour; batches are shuffled, so that is a random partner.
        setup.mixers.append(v2.MixUp(alpha=self.alpha, num_classes=setup.class_count))

    def conflict(self, recipe: RecipeView) -> str | None:
        return refuse_single("mixup", self.is_on, recipe)
