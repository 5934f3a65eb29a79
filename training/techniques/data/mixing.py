"""Mixing: which batches are mixed, each by one of MixUp, CutMix and FMix (Wightman et al. 2021, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup

if TYPE_CHECKING:
    import torch

    from training.recipe import Recipe

MIXERS = ("mixup", "cutmix", "fmix")


class Mixing(Technique):
    interactions: ClassVar[str] = (
        "It means something where mixup, cutmix or fmix is on. With several on, each mixed batch draws one of them, all "
        "equally likely, so that each alpha matters less. Batches that are not mixed keep hard labels."
    )

    probability: float = Field(1.0, gt=0, le=1, description="That a batch is mixed; the others train as they are.")

    def apply(self, setup: TrainingSetup) -> None:
        setup.mixing_probability = self.probability

    def conflict(self, recipe: Recipe) -> str | None:
        if self.is_on and not any(getattr(recipe, name).is_on for name in MIXERS):
            return (
                f"mixing.probability={self.probability:g} does nothing while nothing mixes: set mixup.alpha, cutmix.alpha "
                "or fmix.alpha."
            )
        return None


def refuse_single(name: str, is_on: bool, recipe: Recipe) -> str | None:
    """The sentence on mixing in batches of one image."""
    if is_on and recipe.batch_size == 1:
        return f"{name}.alpha with batch_size=1 would mix each image with itself: raise batch_size."
    return None


def change_batch(setup: TrainingSetup, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a training batch becomes: changed image by image, then mixed by at most one of the mixers.

    Images (N, 3, side, side); labels (N,) stay so where nothing is mixed, else they become shares (N, classes).
    """
    import torch

    for transform in setup.batch_transforms:
        images, labels = transform(images, labels)
    if not setup.mixers or torch.rand(()) >= (setup.mixing_probability or 1.0):
        return images, labels
    return setup.mixers[int(torch.randint(len(setup.mixers), ()))](images, labels)
