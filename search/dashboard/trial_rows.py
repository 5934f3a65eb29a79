"""The trials as rows for the page: what has changed since a version, in the units in which the page shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analysis.effects.search_parameters import OTHER, encode_recipe, is_interval, list_parameters
from analysis.report.choices import list_options
from analysis.report.sweep_data import put_epoch, put_value
from ledger.columns import list_columns
from ledger.formatting import unit_of
from ledger.trials import Trial
from spaces.parameters.domains import LogUniform
from spaces.space import Space
from training.contract.part import Part
from training.recipe import Recipe, flatten

Row = dict[str, object]  # plain values for JSON


class TrialRows:
    """Makes the rows of one sweep. The part of a row that never changes is kept."""

    def __init__(self, space: Space) -> None:
        self.unit = unit_of(space.search.metric)
        self.parameters = list_parameters(space.recipe)
        self.options = [list_options(parameter) for parameter in self.parameters]
        self.labels = [{option.key: option.label for option in options} for options in self.options]
        self.base_recipe = space.baselines()[0]
        self.base = self.base_recipe.flat()
        self.fixed: dict[int, Row] = {}  # by trial

    def list_axes(self) -> list[Row]:
        """Return the search parameters: name, scale, and what is known of the options."""
        return [
            {
                "name": parameter.name,
                "scale": _scale(parameter.domain),
                "options": [option.label for option in options],
                "texts": [option.text for option in options],
                "inside": [option.inside for option in options],
            }
            for parameter, options in zip(self.parameters, self.options, strict=True)
        ]

    def describe_start(self, trial: Trial) -> Row:
        """Return what is known of a trial at its start: its fields other than the base's, and its place on each axis."""
        if trial.number not in self.fixed:
            changes = self._list_changes(trial.recipe)
            flat = {**self.base, **changes}
            self.fixed[trial.number] = {"recipe": changes, "places": list(self._places(flat))}
        return self.fixed[trial.number]

    def _list_changes(self, recipe: Recipe) -> Row:
        """Return the fields with other values than in the base; None for those that the recipe does not have."""
        parts = vars(recipe)
        # Most parts are those of the base. Comparing them takes much less time than writing all values.
        others = [name for name, part in vars(self.base_recipe).items() if parts.get(name) != part]
        others += [name for name in parts if name not in vars(self.base_recipe)]
        flat = flatten({name: _dump(parts.get(name)) for name in others})
        lost = {name: None for name in self.base if name.partition(".")[0] in others and name not in flat}
        return {name: value for name, value in (lost | flat).items() if value != self.base.get(name)}

    def _places(self, flat: Row) -> Iterator[float | str | None]:
        point = encode_recipe(self.parameters, flat)
        for parameter, labels in zip(self.parameters, self.labels, strict=True):
            if is_interval(parameter.domain):
                value = flat.get(parameter.name)
                yield value if isinstance(value, int | float) and math.isfinite(value) else None
            else:
                taken = point.get(parameter.name)
                yield None if taken is None else labels.get(str(taken), OTHER)

    def describe_progress(self, trial: Trial, state: str) -> Row:
        """Return what changes while a trial runs; `state` is that which the page shows."""
        values = {it.name: it.put_on_page(it.value(trial), self.unit) for it in list_columns("pages")}
        curve: list[float | None] = []
        metrics: dict[str, list[float | None]] = {}
        for report in trial.reports:
            put_value(curve, report.epoch, self.unit * report.score)
            put_epoch(metrics, report.epoch, report.metrics)
        return {**values, "state": state, "curve": curve, "metrics": metrics}


def _dump(part: object) -> object:
    return part.model_dump() if isinstance(part, Part) else part


def _scale(domain: object) -> str:
    if not is_interval(domain):
        return "options"
    return "log" if isinstance(domain, LogUniform) and domain.low > 0 else "linear"
