"""Warm start: begin with the best recipes of earlier sweeps, transferred to a new space, also for other data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledger.record import SweepRecord
from spaces.parameters.domains import Tree, find_parameters
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, read_recipe

RECIPES_PER_SWEEP = 3


def collect_warm_starts(space: Space, sweeps: Iterable[SweepRecord]) -> tuple[Recipe, ...]:
    """Return the best completed recipes of each sweep that lie in this space, without duplicates, best first."""
    recipes: list[Recipe] = []
    for sweep in sweeps:
        completed = [trial for trial in sweep.trials.ranked() if trial.state == "completed"]
        moved = [carry_over(space, trial.recipe.model_dump()) for trial in completed]
        carried = [recipe for recipe in moved if recipe is not None]
        if not carried:
            raise UserError(
                f"--warm-start={sweep.name}: none of its {len(completed)} completed trials lies in this space. "
                "Widen the space, or leave that sweep out."
            )
        new = [recipe for recipe in carried if recipe not in recipes]
        recipes += new[:RECIPES_PER_SWEEP]
    return tuple(recipes)


def carry_over(space: Space, values: dict[str, object]) -> Recipe | None:
    """Combine these values of the search parameters with the space's fixed values. None if the recipe lies outside."""
    try:
        recipe = read_recipe(_fill(space.recipe, values))
    except (KeyError, UserError):
        return None  # a search parameter has no value in this recipe, or techniques conflict with the fixed values
    return recipe if space.encode(recipe) is not None else None


def _fill(tree: Tree, value: Any) -> Any:
    if not isinstance(tree, dict):
        return value
    return {name: _fill(part, value[name]) if any(find_parameters(part)) else part for name, part in tree.items()}
