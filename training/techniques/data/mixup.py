"""MixUp: train on convex combinations of pairs of images and of their targets (Zhang et al. 2018, equation 1)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class MixUp(Technique):
    interactions: ClassVar[str] = (
        "If cutmix or fmix is on too, each batch gets one of them. Label smoothing softens the mixed targets further. It slows "
        "learning, so it helps with many epochs, and costs accuracy with few or if only the head trains."
    )
    needs_pairs: ClassVar[str] = "alpha"
    examples: ClassVar[Examples] = ({"mixup": {"alpha": 0.4}},)

    alpha: float = Field(0.0, ge=0, description="The weight λ of an image is from Beta(α, α), once a batch; 0: off.")

    def apply(self, setup: TrainingSetup) -> None:
        from torchvision.transforms import v2

        setup.mixers.append(v2.MixUp(alpha=self.alpha, num_classes=setup.class_count))
