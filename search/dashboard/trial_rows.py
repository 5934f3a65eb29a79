"""The trials as rows for the page: what has changed since a version, in the units in which the page shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from analysis.effects.search_parameters import OTHER, encode_recipe, is_interval, list_levels, list_parameters
from analysis.formatting import mask_secrets, unit_of
from search.core.trials import Trial
from spaces.parameters.domains import LogUniform
from spaces.space import Space
from training.contract.part import Part
from training.recipe import Recipe, flatten
from training.score_metrics import COST

Row = dict[str, Any]  # plain values for JSON
DIGITS, SCORE_DIGITS = 5, 7


class TrialRows:
    """Makes the rows of one sweep. The part of a row that never changes is kept."""

    def __init__(self, space: Space) -> None:
        self.unit = unit_of(space.search.metric)
        self.parameters = list_parameters(space.recipe)
        self.labels = [
            {}
            if is_interval(one.domain)
            else {level.option: level.label for level in list_levels(one) if not level.detail}
            for one in self.parameters
        ]
        self.base_recipe = space.baselines()[0]
        self.base = self.base_recipe.flat()
        self.fixed: dict[int, Row] = {}  # by trial

    def list_axes(self) -> list[Row]:
        """Return the search parameters: name, scale, and the labels of the options."""
        return [
            {"name": one.name, "scale": _scale(one.domain), "options": list(labels.values())}
            for one, labels in zip(self.parameters, self.labels, strict=True)
        ]

    def describe_start(self, trial: Trial) -> Row:
        """Return what is known of a trial at its start: its fields other than the base's, and its place on each axis."""
        if trial.number not in self.fixed:
            changes = self._list_changes(trial.recipe)
            flat = {**self.base, **changes}
            self.fixed[trial.number] = {
                "is_baseline": trial.origin == "baseline",
                "epochs": trial.epochs,
                "recipe": changes,
                "places": list(self._places(flat)),
            }
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
        last = trial.reports[-1] if trial.reports else None
        metrics = last.metrics if last else {}
        kept = next((report for report in trial.reports if last and report.epoch == last.best_epoch), None)
        return {
            "trial": trial.number,
            "state": state,
            "reason": mask_secrets(trial.reason),
            "score": _round(self.unit * last.score if last else None, SCORE_DIGITS),
            "standard_error": _round(self.unit * last.standard_error if last else None),
            "seconds": _round(sum(metrics.get(part) or 0.0 for part in COST) if last else None),
            "memory_mb": _round(metrics.get("peak_memory_mb")),
            "ece": _round(kept.metrics.get("val_ece") if kept else None),
            "epochs_done": trial.epoch,
            "curve": list(self._curve(trial)),
        }

    def _curve(self, trial: Trial) -> Iterator[float | None]:
        epoch = 0
        for report in trial.reports:
            yield from [None] * (report.epoch - epoch - 1)  # a repaired ledger may have lost an epoch
            yield _round(self.unit * report.score)
            epoch = report.epoch


def _dump(part: object) -> object:
    return part.model_dump() if isinstance(part, Part) else part


def _scale(domain: object) -> str:
    if not is_interval(domain):
        return "options"
    return "log" if isinstance(domain, LogUniform) and domain.low > 0 else "linear"


def _round(value: float | None, digits: int = DIGITS) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
