"""Mixing: how many batches are mixed, each by one of MixUp, CutMix and FMix (Wightman et al. 2021, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import torch


class Mixing(Technique):
    interactions: ClassVar[str] = (
        "It needs mixup, cutmix or fmix. If several are on, each mixed batch draws one of them with equal probability, so each "
        "alpha has less effect. Batches that are not mixed keep hard labels."
    )
    examples: ClassVar[Examples] = ({"mixing": {"probability": 0.5}, "mixup": {"alpha": 0.4}},)

    probability: float = Field(1.0, gt=0, le=1, description="Probability that a batch is mixed.")

    def apply(self, setup: TrainingSetup) -> None:
        setup.mixing_probability = self.probability

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.is_on and not (recipe.mixup.is_on or recipe.cutmix.is_on or recipe.fmix.is_on):
            return (
                f"mixing.probability={self.probability:g} does nothing while nothing mixes: set mixup.alpha, cutmix.alpha "
                "or fmix.alpha."
            )
        return None


def change_batch(setup: TrainingSetup, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Change normalised images (N, 3, side, side) one by one, then mix them with at most one of the mixers.

    The labels (N,) come back as they are or, after mixing, as shares of the classes (N, classes).
    """
    import torch

    from training.process.upload import upload

    for transform in setup.batch_transforms:
        images, labels = transform(images, labels)
    if not setup.mixers or torch.rand(()) >= (setup.mixing_probability or 1.0):
        return images, labels
    mix_neighbours = setup.mixers[int(torch.randint(len(setup.mixers), ()))]
    # Neighbours are no random pairs: in the order of the balanced sampler they rarely have the same class.
    order = torch.randperm(len(images))
    order, places = (upload(positions, images.device) for positions in (order, order.argsort()))
    mixed, targets = mix_neighbours(images[order], labels[order])
    return mixed[places], targets[places]
