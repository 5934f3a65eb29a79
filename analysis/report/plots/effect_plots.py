"""Plots of techniques' effects: intervals, and the importance of search parameters."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.effects.technique_effects import NOT_ENOUGH
from analysis.report.plots.plot_style import BLUE, INK, VERDICTS, finish, new_figure
from ledger.formatting import unit_of


def plot_effects(effects: pd.DataFrame, metric: str) -> Figure:
    """The interval of each level's effect relative to the baseline's choice; `effects` is from `measure_effects`."""
    unit = unit_of(metric)
    figure, axes = new_figure(8.2, 0.8 + 0.24 * max(3, len(effects)))
    places = np.arange(len(effects))[::-1]
    axes.axvline(0, color=INK, linewidth=0.8)
    for place, row in zip(places, effects.itertuples(), strict=True):
        colour = VERDICTS[row.verdict]
        if row.verdict == NOT_ENOUGH:
            at = {"xy": (0, place), "xytext": (5, 0), "textcoords": "offset points"}
            axes.annotate(NOT_ENOUGH, **at, va="center", color=INK, alpha=0.8, fontsize=8)
            continue
        axes.plot([unit * row.low, unit * row.high], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(unit * row.effect, place, "o", color=colour, markersize=4.5)
    axes.set_yticks(places, [f"{row.parameter} = {row.level}" for row in effects.itertuples()])
    axes.set_ylim(-0.7, len(effects) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(("points " if unit == 100 else "") + "better than the baseline's choice")
    return finish(figure)


def plot_importance(importance: pd.Series) -> Figure:
    """Shares of importance by search parameter; `importance` is from `measure_importance`."""
    figure, axes = new_figure(8.2, 0.6 + 0.22 * max(3, len(importance)))
    shares = importance.sort_values()
    axes.barh(shares.index, 100 * shares.to_numpy(), color=BLUE, height=0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share of importance (%)")
    return finish(figure)
