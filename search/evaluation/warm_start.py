"""Warm start: begin with the best recipes of earlier sweeps, transferred to a new space, also for other data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from typing import Any

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from spaces.parameters.domains import Choice, Tree, find_parameters
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, read_recipe

RECIPES_PER_SWEEP = 3
MOST_OF_ALL = 4  # recipes of all sweeps: where those mislead, more would cost too much (docs/decisions.md)


def collect_warm_starts(space: Space, sweeps: Sequence[SweepFolder], are_all: bool) -> list[tuple[str, Recipe]]:
    """Return the best completed recipes that lie in this space, with their sweeps: the best of each, then the second of each.

    With `are_all` a sweep may have none; there are no baselines, and the backbone of a recipe is that of its sweep.
    """
    best = (_list_best(space, SweepRecord.open(folder, only_shown=are_all), are_all) for folder in sweeps)
    in_turn = filter(None, chain.from_iterable(zip_longest(*best)))
    return list(islice(_leave_out_copies(in_turn), MOST_OF_ALL if are_all else None))


def _leave_out_copies(recipes: Iterable[tuple[str, Recipe]]) -> Iterator[tuple[str, Recipe]]:
    seen: list[Recipe] = []
    for sweep, recipe in recipes:
        if recipe not in seen:
            seen.append(recipe)
            yield sweep, recipe


def _list_best(space: Space, sweep: SweepRecord, is_one_of_all: bool) -> list[tuple[str, Recipe]]:
    completed = [trial.recipe for trial in sweep.trials.ranked() if trial.state == "completed"]
    carried = filter(None, (_carry_over(space, recipe, is_one_of_all) for recipe in completed))
    best = list(islice(_leave_out_copies((sweep.name, recipe) for recipe in carried), RECIPES_PER_SWEEP))
    if not best and not is_one_of_all:
        raise UserError(
            f"--warm-start={sweep.name}: none of its {len(completed)} completed trials lies in this space. "
            "Widen the space, or leave that sweep out."
        )
    return best


def _carry_over(space: Space, recipe: Recipe, is_one_of_all: bool) -> Recipe | None:
    """Combine its values of the search parameters with the space's fixed values. None if that is no recipe to begin with."""
    try:
        moved = read_recipe(_fill(space.recipe, recipe.model_dump()))
    except (KeyError, UserError):
        return None  # a search parameter has no value in this recipe, or techniques conflict with the fixed values
    is_new = not is_one_of_all or (moved.backbone == recipe.backbone and moved not in space.baselines())
    return moved if is_new and space.encode(moved) is not None else None


def _fill(tree: Tree, value: Any) -> Any:
    if isinstance(tree, Choice) and isinstance(value, dict):
        # What no option names is as in each recipe of the space; the value may be what `auto` was on another machine.
        named = {name for option in tree.options if isinstance(option, dict) for name in option}
        return {name: part for name, part in value.items() if name in named}
    if not isinstance(tree, dict):
        return value
    return {name: _fill(part, value[name]) if any(find_parameters(part)) else part for name, part in tree.items()}
