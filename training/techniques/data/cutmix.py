"""CutMix: a rectangle of each image, and that share of its target, come from another one (Yun et al. 2019, section 3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.techniques.data.partners import refuse_single


class CutMix(Technique):
    interactions: ClassVar[str] = (
        "With mixup or fmix on too, each batch gets one of them. It cuts after augmentation and erasing, so weaken those. "
        "Objects that fill the frame bear it better than small ones, whose cut may hold nothing of their class. It slows "
        "learning, so it loses in short runs."
    )

    alpha: float = Field(0.0, ge=0, description="λ ~ Beta(α, α), the share that stays; drawn once per batch.")

    def apply(self, setup: TrainingSetup) -> None:
        from torchvision.transforms import v2

        # Its targets go by the rectangle's true area, after what the image's border cut off.
        setup.mixers.append(v2.CutMix(alpha=self.alpha, num_classes=setup.class_count))

    def conflict(self, recipe: RecipeView) -> str | None:
        return refuse_single("cutmix", self.is_on, recipe)
