"""CutMix: replace a rectangle of each image, and that share of its target, by another image (Yun et al. 2019, section 3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class CutMix(Technique):
    interactions: ClassVar[str] = (
        "If mixup or fmix is on too, each batch gets one of them. It comes after augmentation and erasing, so weaken those. "
        "It suits objects that fill the frame better than small ones, because a cut may miss a small object. It slows "
        "learning, so it costs accuracy in short trainings."
    )
    needs_pairs: ClassVar[str] = "alpha"
    examples: ClassVar[Examples] = ({"cutmix": {"alpha": 1.0}},)

    alpha: float = Field(0.0, ge=0, description="The share λ that stays is drawn from Beta(α, α) once a batch; 0: off.")

    def apply(self, setup: TrainingSetup) -> None:
        from torchvision.transforms import v2

        # Its targets depend on the actual area of the rectangle inside the image.
        setup.mixers.append(v2.CutMix(alpha=self.alpha, num_classes=setup.class_count))
