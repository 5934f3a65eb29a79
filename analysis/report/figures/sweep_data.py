"""The data of a sweep's interactive figures, as plain lists that become JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.effects.search_parameters import OTHER, SearchParameter, encode, is_interval, list_levels, list_parameters
from analysis.formatting import label_of, unit_of
from analysis.report.figures.rungs import choose_rungs
from spaces.load import FORMAT

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

DIGITS = 5  # of curves and costs, which are only drawn


@dataclass(frozen=True)
class Axis:
    """One search parameter: an interval with a number for each trial, or options with the place of each trial's option."""

    name: str
    scale: str  # `linear`, `log` or `options`
    options: Sequence[str]
    values: Sequence[float | None]


@dataclass(frozen=True)
class SweepData:
    """A sweep for the figures. Each column of `trials`, `varying` and `axes` has a value for each trial.

    Scores are as displayed: accuracies in per cent. A curve is a list of scores for the epochs from 1 on.
    `rungs` are the epochs at which trials were stopped, each with their number.
    """

    name: str
    format: int  # of a recipe's file
    label: str
    maximise: bool
    percent: bool
    trials: dict[str, list[Any]]
    fixed: dict[str, Any]  # fields that all recipes share
    varying: dict[str, list[Any]]
    axes: Sequence[Axis]
    curves: Sequence[Sequence[float | None]]
    rungs: Sequence[tuple[int, int]]
    best: int | None  # the row of the best trial
    baseline: int | None  # the row of the baseline that recipes are compared with


@dataclass(frozen=True)
class EffectData:
    """One level in the figure of effects: its interval in the displayed unit, None if unknown."""

    name: str
    verdict: str
    effect: float | None
    low: float | None
    high: float | None


def collect_sweep(sweep: Sweep) -> SweepData:
    """Collect what the figures show of a sweep, also of one without completed trials."""
    trials, unit = sweep.trials, unit_of(sweep.metric)
    recipes = sweep.recipes.dropna(axis=1, how="all")
    shared = [name for name in recipes if _is_shared(recipes[name])]
    rows = {number: row for row, number in enumerate(trials.trial)}
    base = pd.concat([sweep.completed[sweep.completed.is_baseline], trials[trials.is_baseline]])
    columns = {name: _plain(trials[name]) for name in ("trial", "state", "reason", "is_baseline")}
    columns |= {"score": _round(unit * trials.score, 7), "standard_error": _round(unit * trials.standard_error)}
    columns |= {name: _round(trials[name]) for name in ("seconds", "memory_mb", "ece", "epochs_done", "epochs")}
    return SweepData(
        name=sweep.name,
        format=FORMAT,
        label=label_of(sweep.metric),
        maximise=sweep.sign > 0,
        percent=unit != 1,
        trials=columns,
        fixed={name: _plain(recipes[name].head(1))[0] for name in shared},
        varying={name: _plain(recipes[name]) for name in recipes if name not in shared},
        axes=list_axes(list_parameters(sweep.space.recipe), sweep.recipes),
        curves=_list_curves(sweep),
        rungs=find_rungs(trials),
        best=rows[sweep.completed.trial.iloc[0]] if len(sweep.completed) else None,
        baseline=rows[base.trial.iloc[0]] if len(base) else None,
    )


def list_axes(parameters: Sequence[SearchParameter], recipes: pd.DataFrame) -> list[Axis]:
    """The search parameters with their value in each flat recipe."""
    points = encode(list(parameters), recipes)
    axes = []
    for parameter in parameters:
        if is_interval(parameter.domain):
            values = pd.to_numeric(recipes[parameter.name], errors="coerce")
            is_log = type(parameter.domain).__name__ == "LogUniform" and bool((values.dropna() > 0).all())
            axes.append(Axis(parameter.name, "log" if is_log else "linear", [], _plain(values)))
            continue
        labels = {level.option: level.label for level in list_levels(parameter) if not level.detail}
        if (points[parameter.name] == OTHER).any():
            labels[OTHER] = OTHER
        places = {option: place for place, option in enumerate(labels)}
        axes.append(Axis(parameter.name, "options", list(labels.values()), _plain(points[parameter.name].map(places))))
    return axes


def collect_effects(effects: pd.DataFrame, metric: str, detail: bool = False) -> list[EffectData]:
    """The levels of a table of `measure_effects`; `detail` adds the thirds of intervals inside options."""
    rows = effects if detail else effects[~effects.detail.astype(bool)]
    unit = unit_of(metric)
    return [
        EffectData(
            f"{row.parameter} = {row.level}",
            row.verdict,
            *(None if pd.isna(value) else round(unit * value, 4) for value in (row.effect, row.low, row.high)),
        )
        for row in rows.itertuples()
    ]


def find_rungs(trials: pd.DataFrame) -> list[tuple[int, int]]:
    """The epochs at which several trials were stopped, each with the number of them."""
    return choose_rungs(trials[trials.state == "stopped"].epochs_done.value_counts().to_dict(), len(trials))


def _list_curves(sweep: Sweep) -> list[list[float | None]]:
    drawn = sweep.curves[sweep.curves.epoch >= 1]
    scores = (unit_of(sweep.metric) * drawn.score).to_numpy(dtype=float)
    curves: dict[int, list[float | None]] = {}
    for trial, epoch, score in zip(drawn.trial.tolist(), drawn.epoch.tolist(), _round(pd.Series(scores)), strict=True):
        curve = curves.setdefault(trial, [])
        curve.extend([None] * (epoch - len(curve)))
        curve[epoch - 1] = score
    return [curves.get(number, []) for number in sweep.trials.trial.tolist()]


def _is_shared(column: pd.Series) -> bool:
    return bool(column.notna().all()) and column.astype(str).nunique() == 1


def _plain(column: pd.Series) -> list[Any]:
    """The values as Python's own; None if missing."""
    return [None if isinstance(value, float) and not np.isfinite(value) else value for value in column.tolist()]


def _round(column: pd.Series, digits: int = DIGITS) -> list[float | None]:
    values = pd.to_numeric(column, errors="coerce").tolist()
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values]
