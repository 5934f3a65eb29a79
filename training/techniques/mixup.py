"""MixUp: train on convex combinations of pairs of images and of their targets (Zhang et al. 2018, equation 1)."""

from __future__ import annotations

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup


class MixUp(Technique):
    alpha: float = Field(0.0, ge=0, description="λ ~ Beta(α, α), drawn once per batch.")

    def apply(self, setup: TrainingSetup) -> None:
        from torchvision.transforms import v2

        # Pairs each image with its neighbour; batches are shuffled, so that is a random partner.
        setup.batch_transforms.append(v2.MixUp(alpha=self.alpha, num_classes=setup.class_count))
