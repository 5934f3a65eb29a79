"""The partners of images that are mixed: random others of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training.contract.part import RecipeView

if TYPE_CHECKING:
    import torch

    from training.contract.setup import BatchTransform


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
