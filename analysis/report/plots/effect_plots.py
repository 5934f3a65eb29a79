"""Plots of techniques' effects: intervals, isolation plots (deep learning tuning playbook), importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.effects.search_parameters import list_parameters
from analysis.effects.technique_effects import NOT_ENOUGH
from analysis.report.plots.plot_style import BLUE, GREY, INK, MANY, ORANGE, VERDICTS, finish, new_figure, wrap_axes
from analysis.report.sweep_data import list_axes
from ledger.formatting import label_of, unit_of

if TYPE_CHECKING:
    from ledger.tables import Sweep

COLUMNS = 3


def plot_effects(effects: pd.DataFrame, metric: str, detail: bool = False) -> Figure:
    """The interval of each level's effect relative to the baseline's choice; `effects` is from `measure_effects`."""
    rows = effects if detail else effects[~effects.detail.astype(bool)]
    unit = unit_of(metric)
    figure, axes = new_figure(8.2, 0.8 + 0.24 * max(3, len(rows)))
    places = np.arange(len(rows))[::-1]
    axes.axvline(0, color=INK, linewidth=0.8)
    for place, row in zip(places, rows.itertuples(), strict=True):
        colour = VERDICTS[row.verdict]
        if row.verdict == NOT_ENOUGH:
            at = {"xy": (0, place), "xytext": (5, 0), "textcoords": "offset points"}
            axes.annotate(NOT_ENOUGH, **at, va="center", color=INK, alpha=0.8, fontsize=8)
            continue
        axes.plot([unit * row.low, unit * row.high], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(unit * row.effect, place, "o", color=colour, markersize=4.5)
    axes.set_yticks(places, [f"{row.parameter} = {row.level}" for row in rows.itertuples()])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(("points " if unit == 100 else "") + "better than the baseline's choice")
    return finish(figure)


def plot_intervals(label: str, rows: Sequence[Mapping[str, Any]], *, zero: bool) -> Figure:
    """One row for each recipe or technique: the mean with its interval, and a point for each seed.

    `rows` are those of `interval_row`; `zero` draws the line of no difference.
    """
    figure, axes = new_figure(7.5, 0.9 + 0.32 * len(rows))
    for place, row in enumerate(rows):
        colour = (BLUE, ORANGE)[row["group"]]
        axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(row["mean"], place, "o", color=colour, markersize=5.5)
        points = [value for value, _ in row["points"]]
        axes.plot(points, [place + 0.3] * len(points), "D", color=colour, markersize=3, alpha=0.75)
    if zero:
        axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(label)
    return finish(figure)


def plot_isolation(sweep: Sweep) -> Figure:
    """Every trial's score over its value of each search parameter.

    Compare the best scores at each value, because other parameters differ between trials.
    """
    parameters = list_parameters(sweep.space.recipe)
    trials = sweep.trials[sweep.trials.score.notna() & ~sweep.trials.state.isin(["diverged", "failed"])]
    pixels = len(trials) > MANY
    rows = -(-max(1, len(parameters)) // COLUMNS)
    figure, grid = new_figure(8.2, 0.4 + 1.9 * rows, rows, COLUMNS, sharey=True, squeeze=False)
    unit, rng = unit_of(sweep.metric), np.random.default_rng(0)
    for axes, axis in zip(wrap_axes(grid), list_axes(parameters, sweep.recipes.loc[trials.trial]), strict=False):
        x = np.array(axis.values, dtype=float)
        if axis.scale == "log":
            axes.set_xscale("log")
        if axis.scale == "options":
            names = [cut(label, 14) for label in axis.options]
            axes.set_xticks(range(len(names)), names, rotation=0 if len(names) < 4 else 30)
            axes.set_xlim(-0.5, len(names) - 0.5)
            x += rng.uniform(-0.15, 0.15, len(x))
        done = (trials.state == "completed").to_numpy()
        score = unit * trials.score.to_numpy()
        axes.plot(x[~done], score[~done], ".", color=GREY, markersize=4, alpha=0.5, rasterized=pixels)
        axes.plot(x[done], score[done], "o", color=BLUE, markersize=4, alpha=0.8, rasterized=pixels)
        base = trials.is_baseline.to_numpy() & done
        axes.plot(x[base], score[base], "o", color=ORANGE, markersize=5)
        axes.set_title(axis.name)
    for axes in wrap_axes(grid)[len(parameters) :]:
        axes.set_visible(False)
    figure.supylabel(label_of(sweep.metric), fontsize=9)
    return finish(figure)


def cut(text: str, width: int) -> str:
    """The text, shortened to `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def plot_importance(importance: pd.Series) -> Figure:
    """Shares of importance by search parameter; `importance` is from `measure_importance`."""
    figure, axes = new_figure(8.2, 0.6 + 0.22 * max(3, len(importance)))
    shares = importance.sort_values()
    axes.barh(shares.index, 100 * shares.to_numpy(), color=BLUE, height=0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share of importance (%)")
    return finish(figure)
