"""A space: a recipe with search parameters, and its methods for a search."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from spaces.baseline import build_baselines, build_probe
from spaces.parameters import draws
from spaces.parameters.conditions import Assignment, Retrace, list_assignments, suggest
from spaces.parameters.domains import Tree, format_value, unparse
from spaces.parameters.draws import OptunaTrial, Params
from spaces.parameters.views import Gone, encode, prune, values_at
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

    def suggest(self, trial: OptunaTrial) -> dict[str, Tree]:
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
        """The parameters of every point of the space."""
        if self.count() > GRID_LIMIT:
            raise UserError(
                f"search.sampler=grid would list {self.count():,} combinations, more than {GRID_LIMIT:,}: "
                "fix some values, or search with search.sampler=tpe or random."
            )
        return [params for params, _ in draws.draw_every(partial(draws.draw, self.recipe), draws.GridTrial())]

    def count(self) -> int:
        """The number of combinations of the discrete domains."""
        return draws.count(self.recipe)

    def probe(self) -> Recipe | None:
        """The linear probe on frozen features, if the space searches `linear_probe`: the first trial, in seconds."""
        return build_probe(self.recipe, self.search.baseline, self.search.probe_size)

    def baselines(self) -> list[Recipe]:
        """The baseline at its learning rate, then at ⅓ and 3 times that rate.

        It has its own rate alone if the space has a probe, or searches no rate, as its techniques then have no other either.
        It has the fixed values, the choices of `search.baseline`, and the recipe's default for every other search parameter.
        """
        return build_baselines(self.recipe, self.search.baseline)

    def to_yaml(self) -> str:
        """The text of a file from which this space loads again."""
        return dump_yaml({"format": 1, "recipe": unparse(self.recipe), "search": self.search.model_dump()})

    def without(self, path: str, values: Collection[object]) -> Space:
        """This space without these values in the choices at `path`, such as `precision.mode`."""
        left = prune(self.recipe, Recipe, path.split("."), values)
        if isinstance(left, Gone):
            offered = ", ".join(sorted(map(format_value, self.values_of(path))))
            raise UserError(f"{path}: nothing is left of what the space offers ({offered}). Offer another value.")
        return replace(self, recipe=left)

    def values_of(self, path: str) -> set[Any]:
        """Every value that `path` can take; a continuous domain is given as it is, and a list as a tuple."""
        return set(values_at(self.recipe, path))
