"""The data of a sweep's interactive figures, as plain lists that become JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.effects.search_parameters import OTHER, SearchParameter, encode, list_parameters
from analysis.report.choices import list_options
from ledger.columns import list_columns
from ledger.formatting import label_of, unit_of
from spaces.load import FORMAT
from spaces.parameters.domains import Choice, Domain, Interval, LogUniform, find_parameters

if TYPE_CHECKING:
    from ledger.tables import Sweep

DIGITS = 5  # of a curve
# The metrics of each epoch that the figures draw, with the factor of their displayed values.
EPOCH_METRICS = {"val_loss": 1.0, "train_loss": 1.0, "val_accuracy": 100.0, "train_accuracy": 100.0, "lr": 1.0}
SHARE = 0.03  # An epoch at which fewer trials were stopped is not drawn as a rung.


@dataclass(frozen=True)
class Axis:
    """One search parameter: an interval with a number for each trial, or options with the place of each trial's option.

    `texts` and `inside` belong to the options: what a choice of each is called, and its searched fields.
    """

    name: str
    scale: str  # `linear`, `log` or `options`
    options: Sequence[str]
    texts: Sequence[str]
    inside: Sequence[Sequence[str]]
    values: Sequence[float | None]


@dataclass(frozen=True)
class SweepData:
    """A sweep for the figures. Each column of `trials`, `varying` and `axes` has a value for each trial.

    Scores are as displayed: accuracies in per cent. A curve is a list of scores for the epochs from 1 on. `epochs` has
    for each trial the `EPOCH_METRICS` that it has, as such lists too. `rungs` are the epochs at which trials were
    stopped, each with their number. `slices` are from `list_slices`, and `course` from `measure_course`.
    """

    name: str
    format: int  # of a recipe's file
    label: str
    maximise: bool
    percent: bool
    columns: Sequence[dict[str, Any]]  # how the scripts show those of `trials`
    trials: dict[str, list[Any]]
    fixed: dict[str, Any]  # fields that all recipes share
    varying: dict[str, list[Any]]
    axes: Sequence[Axis]
    slices: Sequence[Axis]
    curves: Sequence[Sequence[float | None]]
    epochs: Sequence[dict[str, list[float | None]]]
    rungs: Sequence[tuple[int, int]]
    course: Sequence[tuple[int, float]]
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
    shared = [name for name, column in recipes.items() if column.notna().all() and column.astype(str).nunique() == 1]
    rows = {number: row for row, number in enumerate(trials.trial)}
    base = pd.concat([sweep.baselines, trials[trials.is_baseline]])
    curves, epochs = _list_lines(sweep)
    columns = {
        it.name: [it.put_on_page(value, unit) for value in trials[it.name].tolist()] for it in list_columns("pages")
    }
    return SweepData(
        name=sweep.name,
        format=FORMAT,
        label=label_of(sweep.metric),
        maximise=sweep.sign > 0,
        percent=unit != 1,
        columns=[{"name": it.name, "title": it.label, "listed": "listed" in it.tables} for it in list_columns("pages")],
        trials=columns,
        fixed={name: _plain(recipes[name].head(1))[0] for name in shared},
        varying={name: _plain(recipes[name]) for name in recipes if name not in shared},
        axes=list_axes(list_parameters(sweep.space.recipe), sweep.recipes),
        slices=list_slices(sweep),
        curves=curves,
        epochs=epochs,
        rungs=find_rungs(trials),
        course=list((unit * measure_course(sweep)).items()),
        best=rows[sweep.completed.trial.iloc[0]] if len(sweep.completed) else None,
        baseline=rows[base.trial.iloc[0]] if len(base) else None,
    )


def list_axes(parameters: Sequence[SearchParameter], recipes: pd.DataFrame) -> list[Axis]:
    """The search parameters with their value in each flat recipe."""
    points = encode(list(parameters), recipes)
    axes = []
    for parameter in parameters:
        if isinstance(parameter.domain, Interval):
            values = pd.to_numeric(recipes[parameter.name], errors="coerce")
            is_log = isinstance(parameter.domain, LogUniform) and bool((values.dropna() > 0).all())
            axes.append(Axis(parameter.name, "log" if is_log else "linear", [], [], [], _plain(values)))
            continue
        options = list_options(parameter)
        labels = {option.key: option.label for option in options}
        if (points[parameter.name] == OTHER).any():
            labels[OTHER] = OTHER
        places = {option: place for place, option in enumerate(labels)}
        texts, inside = [option.text for option in options], [option.inside for option in options]
        values = points[parameter.name].map(places)
        axes.append(Axis(parameter.name, "options", list(labels.values()), texts, inside, _plain(values)))
    return axes


def list_slices(sweep: Sweep) -> list[Axis]:
    """The search parameters, also those inside options, that have several values among the trials of full length.

    The others have no values there, and neither have trials with another option.
    """
    full = (sweep.trials.state == "completed").to_numpy()
    parameters, recipes = list_parameters(sweep.space.recipe), sweep.recipes[full]
    axes, points = list_axes(parameters, recipes), encode(parameters, recipes)
    for name, domains in _find_inside(parameters).items():
        if name in recipes and all(isinstance(domain, Interval) for domain in domains):
            taken = [column for column in points if "[" in column and re.sub(r"\[[^]]*\]", "", column) == name]
            numbers = pd.to_numeric(recipes[name], errors="coerce").where(points[taken].notna().any(axis=1))
            axes += list_axes([SearchParameter(name, domains[0])], recipes.assign(**{name: numbers}))
    rows = np.flatnonzero(full).tolist()
    spread = [dict(zip(rows, axis.values, strict=True)) for axis in axes]
    return [
        replace(axis, values=[values.get(row) for row in range(len(full))])
        for axis, values in zip(axes, spread, strict=True)
        if len(set(values.values()) - {None}) > 1
    ]


def _find_inside(parameters: Sequence[SearchParameter]) -> dict[str, list[Domain]]:
    inside: dict[str, list[Domain]] = {}
    for parameter in parameters:
        for option in parameter.domain.options if isinstance(parameter.domain, Choice) else ():
            for steps, domain in find_parameters(option):
                inside.setdefault(".".join([parameter.name, *map(str, steps)]), []).append(domain)
    return inside


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
    stops = trials[trials.state == "stopped"].epochs_done.value_counts()
    fewest = max(2, SHARE * len(trials))
    return [(int(epoch), int(count)) for epoch, count in stops.sort_index().items() if count >= fewest]


def measure_course(sweep: Sweep) -> pd.Series:
    """The best score of full length so far, by the epochs that all trials had run then."""
    trials = sweep.trials.sort_values("ended", kind="stable")
    best = (sweep.sign * trials.score).where(trials.state == "completed").cummax().ffill()
    return (sweep.sign * best).groupby(trials.epochs_done.cumsum()).last().dropna()


def _put_value(line: list[float | None], epoch: int, value: float) -> None:
    """Put the value of an epoch, which counts from 1, into a line; epochs without a value have None."""
    line.extend([None] * (epoch - len(line)))
    line[epoch - 1] = float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _list_lines(sweep: Sweep) -> tuple[list[list[float | None]], list[dict[str, list[float | None]]]]:
    drawn = sweep.curves[sweep.curves.epoch >= 1]
    scores = (unit_of(sweep.metric) * drawn.score).to_numpy(dtype=float).tolist()
    metrics = zip(*(drawn[name].tolist() for name in EPOCH_METRICS), strict=True)  # faster than a dict for each epoch
    curves: dict[int, list[float | None]] = {}
    epochs: dict[int, dict[str, list[float | None]]] = {}
    for trial, epoch, score, row in zip(drawn.trial.tolist(), drawn.epoch.tolist(), scores, metrics, strict=True):
        _put_value(curves.setdefault(trial, []), epoch, score)
        for (name, factor), value in zip(EPOCH_METRICS.items(), row, strict=True):
            if math.isfinite(value):
                _put_value(epochs.setdefault(trial, {}).setdefault(name, []), epoch, factor * value)
    numbers = sweep.trials.trial.tolist()
    return [curves.get(number, []) for number in numbers], [epochs.get(number, {}) for number in numbers]


def _plain(column: pd.Series) -> list[Any]:
    return [None if isinstance(value, float) and not np.isfinite(value) else value for value in column.tolist()]
