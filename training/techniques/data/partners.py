"""Partners in a mix: which image each image of a batch is mixed with."""

from __future__ import annotations

from training.contract.part import RecipeView


def refuse_single(name: str, is_on: bool, recipe: RecipeView) -> str | None:
    """The sentence on mixing in batches of one image."""
    if is_on and recipe.batch_size == 1:
        return f"{name}.alpha with batch_size=1 would mix each image with itself: raise batch_size."
    return None
