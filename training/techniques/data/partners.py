"""Check that a batch has at least two images to mix."""

from __future__ import annotations

from training.contract.part import RecipeView


def refuse_single(name: str, is_on: bool, recipe: RecipeView) -> str | None:
    """Return a sentence if a technique would mix batches of one image, else None."""
    if is_on and recipe.batch_size == 1:
        return f"{name}.alpha with batch_size=1 would mix each image with itself: raise batch_size."
    return None
