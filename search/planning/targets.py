"""Choose the few recipes whose cost is measured: a base, and one for each other value of a choice that decides the cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from search.planning.features import LEVEL, NUMBERS, Features, describe_features, key_of, list_levels
from spaces.parameters.draws import RandomTrial
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, read_recipe

DRAWS = 300  # random recipes that stand for those of the sweep
MOST = 16  # recipes for the branches
CHECKS = 3  # recipes on which the model's error is measured

Kind = Literal["base", "branch", "check", "heaviest"]


@dataclass(frozen=True)
class Target:
    """A recipe at one level of unfreeze."""

    recipe: Recipe
    level: str
    kind: Kind = "branch"

    @property
    def features(self) -> Features:
        return describe_features(self.recipe, self.level)


def draw_recipes(space: Space, resolve: Callable[[Recipe], Recipe], count: int = DRAWS) -> list[Recipe]:
    """Return the first baseline and random recipes of a space; draws that conflict are skipped."""
    found = [resolve(space.baselines()[0])]
    for seed in range(count):
        with suppress(UserError):
            found.append(resolve(read_recipe(space.suggest(RandomTrial(seed)))))
    return found


def list_targets(recipes: Sequence[Recipe]) -> list[Target]:
    """Return each recipe at each of its levels of unfreeze, those with equal features once."""
    found: dict[object, Target] = {}
    for target in (Target(recipe, level) for recipe in recipes for level, _ in list_levels(recipe)):
        found.setdefault(key_of(target.features), target)
    return list(found.values())


def choose_targets(candidates: Sequence[Target], most: int = MOST) -> tuple[list[Target], list[str]]:
    """Return the base and the recipes for the branches, and the names of the choices that are left out.

    Each of them differs from the base in one choice, or is a draw with that choice if it does not fit the base.
    """
    base = Target(candidates[0].recipe, candidates[0].level, "base")
    chosen, left_out = {key_of(base.features): base}, []
    for name in base.features:
        for donor in _find_donors(name, candidates):
            target = _transplant(base, donor, name)
            if len(chosen) > most:
                left_out.append(name)
                break
            chosen.setdefault(key_of(target.features), target)
    return list(chosen.values()), left_out


def _find_donors(name: str, candidates: Sequence[Target]) -> Iterator[Target]:
    """Return a candidate for each value of a feature; for numbers for the lowest and the highest."""
    by_value = {candidate.features[name]: candidate for candidate in reversed(candidates)}
    numbers = [value for value in by_value if isinstance(value, float)] if name in NUMBERS else []
    between = set(numbers) - {min(numbers), max(numbers)} if numbers else set()
    yield from (donor for value, donor in by_value.items() if value not in between)


def _transplant(base: Target, donor: Target, name: str) -> Target:
    part = name.partition(".")[0]
    changed = base.recipe.model_copy(update={part: getattr(donor.recipe, part)})
    try:
        recipe = read_recipe(changed.model_dump())
    except UserError:
        return Target(donor.recipe, donor.level)
    return Target(recipe, donor.level if name == LEVEL else base.level)


def choose_checks(candidates: Sequence[Target], measured: Sequence[Target], count: int = CHECKS) -> list[Target]:
    """Return random candidates that were not measured."""
    known = {key_of(target.features) for target in measured}
    others = [target for target in candidates if key_of(target.features) not in known]
    chosen = random.Random(0).sample(others, min(count, len(others)))
    return [Target(target.recipe, target.level, "check") for target in chosen]
