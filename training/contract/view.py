"""The type of a recipe for its parts. `Recipe` imports all of them, so they see it in types alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.recipe import Recipe

    RecipeView = Recipe
else:
    RecipeView = object
