"""A space: a recipe with search parameters, and its methods for a search."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from spaces.baseline import build_baselines
from spaces.parameters import draws
from spaces.parameters.conditions import Assignment, Retrace, list_assignments, suggest
from spaces.parameters.domains import Tree, unparse
from spaces.parameters.draws import Params, Trial
from spaces.parameters.rows import Row, list_rows
from spaces.parameters.views import encode, prune, values_at
from spaces.reading.yaml_values import dump_yaml
from spaces.search import Search
from training.errors import UserError
from training.recipe import Recipe

GRID_LIMIT = 100_000


@dataclass(frozen=True)
class Space:
    """A recipe with domains for its search parameters, and how they are searched."""

    name: str = field(compare=False)  # The same space in another file is equal.
    recipe: dict[str, Tree]
    search: Search

    def suggest(self, trial: Trial) -> dict[str, Tree]:
        """Draw the values of a recipe. Options that conflict with values drawn before them are not sampled."""
        return suggest(self.recipe, self._assignments, trial)

    @cached_property
    def _assignments(self) -> dict[str, list[Assignment]]:
        return list_assignments(self.recipe)

    def encode(self, recipe: Recipe) -> Params | None:
        """The parameters that draw this recipe; None if it lies outside the space."""
        params = encode(self.recipe, recipe)
        if params is None:
            return None
        trial = Retrace(params)
        suggest(self.recipe, self._assignments, trial)
        return trial.used

    def grid(self) -> list[Params]:
        """The parameters of every point of the space.

        Raises:
            UserError: A domain is continuous, or there are too many points.
        """
        if self.count() > GRID_LIMIT:
            raise UserError(
                f"search.sampler=grid would list {self.count():,} combinations, more than {GRID_LIMIT:,}: "
                "fix some values, or search with search.sampler=tpe or random."
            )
        return list(draws.enumerate_params(self.recipe))

    def count(self) -> int:
        """The number of combinations of the discrete domains."""
        return draws.count(self.recipe)

    def baselines(self) -> list[Recipe]:
        """The baseline at its learning rate, then at ⅓ and 3 times that rate.

        It has the fixed values, the choices of `search.baseline`, and the recipe's default for every other search parameter.

        Raises:
            UserError: Its techniques conflict.
        """
        return build_baselines(self.recipe, self.search.baseline)

    def rows(self) -> list[Row]:
        """Every search parameter, and every fixed value that is not the default, as rows of a table."""
        return list_rows(self.recipe)

    def to_yaml(self) -> str:
        """The text of a file from which this space loads again."""
        return dump_yaml({"format": 1, "recipe": unparse(self.recipe), "search": self.search.model_dump()})

    def without(self, path: str, values: Collection[object]) -> Space:
        """This space without these values in the choices at `path`, such as `precision.mode`.

        Raises:
            UserError: No value would be left.
        """
        return replace(self, recipe=prune(self.recipe, path, values))

    def values_of(self, path: str) -> set[Any]:
        """Every value that `path` can take; a continuous domain is given as it is, and a list as a tuple."""
        return set(values_at(self.recipe, path))
