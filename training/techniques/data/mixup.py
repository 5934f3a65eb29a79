"""MixUp: train on convex combinations of pairs of images and of their targets (Zhang et al. 2018, equation 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples, RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique

if TYPE_CHECKING:
    import torch

    from training.contract.setup import BatchTransform


class MixUp(Technique):
    interactions: ClassVar[str] = (
        "If cutmix or fmix is on too, each batch gets one of them. Label smoothing softens the mixed targets further. It slows "
        "learning, so it helps with many epochs, and costs accuracy with few or if only the head trains."
    )
    examples: ClassVar[Examples] = ({"mixup": {"alpha": 0.4}},)

    alpha: float = Field(
        0.0, ge=0, description="The weight λ of an image is drawn from Beta(α, α) once per batch; 0: off."
    )

    def apply(self, setup: TrainingSetup) -> None:
        from torchvision.transforms import v2

        setup.mixers.append(pair_at_random(v2.MixUp(alpha=self.alpha, num_classes=setup.class_count)))

    def conflict(self, recipe: RecipeView) -> str | None:
        return refuse_single("mixup", self.is_on, recipe)


def pair_at_random(mix_neighbours: BatchTransform) -> BatchTransform:
    """Return a mixer that gives each image a random other image of the batch as its partner.

    The given mixer mixes each image with the one before it, as those of torchvision do.
    """

    def mix(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        from training.process.upload import upload

        # Neighbours are no random pairs: in the order of the balanced sampler they rarely have the same class.
        order = torch.randperm(len(images))
        order, places = (upload(positions, images.device) for positions in (order, order.argsort()))
        mixed, targets = mix_neighbours(images[order], labels[order])
        return mixed[places], targets[places]

    return mix


def refuse_single(name: str, is_on: bool, recipe: RecipeView) -> str | None:
    """Return a sentence if a technique would mix batches of one image, else None."""
    if is_on and recipe.batch_size == 1:
        return f"{name}.alpha with batch_size=1 would mix each image with itself: raise batch_size."
    return None
