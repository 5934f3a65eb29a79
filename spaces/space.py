"""A space: a recipe with holes, and what can be asked of it before and during a search."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spaces.baseline import build_baselines
from spaces.parameters import draws
from spaces.parameters.conditions import Retrace, Way, list_ways, suggest
from spaces.parameters.domains import unparse
from spaces.parameters.draws import Trial
from spaces.parameters.rows import Row, list_rows
from spaces.parameters.views import encode, prune, values_at
from spaces.reading.yaml_values import dump_yaml
from spaces.search import Search
from training.errors import UserError
from training.recipe import Recipe

GRID_LIMIT = 100_000


@dataclass(frozen=True)
class Space:
    name: str = field(compare=False)  # the same space stays equal under another file name
    recipe: dict[str, Any]  # plain values, with domains for holes
    search: Search

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """Values of a recipe, every hole filled by the trial, and no option offered that conflicts with those before it."""
        return suggest(self.recipe, self._ways, trial)

    @cached_property
    def _ways(self) -> dict[str, list[Way]]:
        return list_ways(self.recipe)

    def encode(self, recipe: Recipe) -> dict[str, Any] | None:
        """The parameters that would draw this recipe; None when it lies outside the space."""
        params = encode(self.recipe, recipe)
        if params is None:
            return None
        trial = Retrace(params)
        suggest(self.recipe, self._ways, trial)
        return trial.asked

    def grid(self) -> list[dict[str, Any]]:
        """The parameters of every point.

        Raises:
            UserError: a domain is continuous, or there are too many points.
        """
        if self.count() > GRID_LIMIT:
            raise UserError(
                f"search.sampler=grid would list {self.count():,} combinations, more than {GRID_LIMIT:,}: "
                "fix some values, or search with search.sampler=tpe or random."
            )
        return list(draws.enumerate_params(self.recipe))

    def count(self) -> int:
        """Combinations of the discrete part."""
        return draws.count(self.recipe)

    def baselines(self) -> list[Recipe]:
        """The fixed values and the recipe's default in every hole, at its learning rate, then ⅓ and 3 times that.

        Raises:
            UserError: its techniques conflict.
        """
        return build_baselines(self.recipe)

    def rows(self) -> list[Row]:
        """Every hole, and every fixed value that is not the default, as lines of a table."""
        return list_rows(self.recipe)

    def to_yaml(self) -> str:
        """The file from which this space loads again."""
        return dump_yaml({"format": 1, "recipe": unparse(self.recipe), "search": self.search.model_dump()})

    def without(self, path: str, values: Collection[Any]) -> Space:
        """This space with these values taken out of every choice at `path`, such as `precision.mode`.

        Raises:
            UserError: nothing would be left.
        """
        return replace(self, recipe=prune(self.recipe, path, values))

    def values_of(self, path: str) -> set[Any]:
        """Every value that `path` can take; a continuous domain stands for itself, a list becomes a tuple."""
        return set(values_at(self.recipe, path))
