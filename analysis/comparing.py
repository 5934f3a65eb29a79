"""`analysis.compare`: the winners, the choices and the effects of several sweeps side by side, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.effects.technique_effects import fit_sweep, measure_effects
from analysis.loading import LoadedSweep, load
from analysis.report.sweep_data import measure_course
from training.recipe import flatten


@dataclass(frozen=True)
class Comparison:
    """Several sweeps side by side.

    `best` has a row for each sweep: its state, number of trials, and the score of its best trial. `differences` has the
    fields of the spaces and of the best recipes that differ, with a column for each sweep. `effects` has a row for each
    level of each search parameter, with the columns of `measure_effects` for each sweep. `course` has the best score of
    full length by the epochs that all trials of a sweep had run, with a column for each sweep.
    """

    sweeps: dict[str, LoadedSweep]
    best: pd.DataFrame
    differences: pd.DataFrame
    effects: pd.DataFrame
    course: pd.DataFrame


def compare(names: Sequence[str], tracking_uri: str | None = None, storage: str | Path = "sweeps") -> Comparison:
    """Read several sweeps as `load` does, and put them side by side. Scores are comparable on the same images only."""
    sweeps = {name: load(name, tracking_uri, storage) for name in names}
    facts = ["trial", "score", "standard_error", "seconds"]
    best = {
        name: {"state": sweep.state, "metric": sweep.metric, "trials": len(sweep.trials)}
        | dict(zip(facts, sweep.completed[facts].head(1).to_numpy().ravel(), strict=False))
        for name, sweep in sweeps.items()
    }
    choices = pd.DataFrame({name: _list_choices(sweep) for name, sweep in sweeps.items()}, dtype=object)
    differs = choices.map(repr).nunique(axis=1) > 1
    tables = {name: measure_effects(fit_sweep(sweep)).query("not detail") for name, sweep in sweeps.items()}
    levels = {name: table.set_index(["parameter", "level"]) for name, table in tables.items()}
    effects = pd.concat(levels, axis=1).swaplevel(axis=1)
    course = pd.DataFrame({name: measure_course(sweep) for name, sweep in sweeps.items()}).ffill()
    return Comparison(sweeps, pd.DataFrame.from_dict(best, "index"), choices[differs], effects, course)


def _list_choices(sweep: LoadedSweep) -> dict[str, object]:
    space = flatten({"space": sweep.space.recipe, "search": sweep.space.search.model_dump()})
    best = sweep.recipes.loc[sweep.completed.trial.head(1)].to_dict("records")
    return space | {f"best.{field}": value for recipe in best for field, value in recipe.items()}
