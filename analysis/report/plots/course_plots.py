"""Plots of what a sweep cost and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from analysis.report.plots.plot_style import BLUE, GREEN, GREY, MANY, ORANGE, RED, finish, new_figure
from ledger.columns import list_columns
from ledger.formatting import label_of, unit_of

if TYPE_CHECKING:
    from ledger.tables import Sweep

COSTS = ("seconds", "memory_mb", "ece")  # less is better


def pareto_front(cost: ArrayLike, score: ArrayLike) -> np.ndarray:
    """A mask, shape (n,), of the points that no other point beats in both a lower cost and a higher score, (n,) each.

    Of equal points it has the first only.
    """
    points = pd.DataFrame({"cost": np.asarray(cost), "score": np.asarray(score)})
    points = points.sort_values(["cost", "score"], ascending=[True, False])
    is_new = points.score > points.score.cummax().shift(fill_value=-np.inf)
    return is_new.sort_index().to_numpy()


def plot_costs(sweep: Sweep) -> Figure:
    """Completed trials by score and cost; a line joins those that no other trial beats in both."""
    labels = {column.name: column.label for column in list_columns("frame")}
    costs = [cost for cost in COSTS if sweep.completed[cost].notna().any()]
    figure, [panels] = new_figure(8.2, 2.8, 1, max(1, len(costs)), sharey=True, squeeze=False)
    unit = unit_of(sweep.metric)
    for axes, cost in zip(panels, costs, strict=False):
        done = sweep.completed[sweep.completed[cost].notna()]
        front = done[pareto_front(done[cost], sweep.sign * done.score)].sort_values(cost)
        axes.step(front[cost], unit * front.score, where="post", color=BLUE, linewidth=1, alpha=0.6)
        colours = np.where(done.is_baseline, ORANGE, np.where(done.trial.isin(front.trial), BLUE, GREY))
        axes.scatter(done[cost], unit * done.score, c=colours, s=18, rasterized=len(done) > MANY)
        for trial in front.itertuples():
            place = (getattr(trial, cost), unit * trial.score)
            axes.annotate(f"{trial.trial:04d}", place, fontsize=7, xytext=(3, 3), textcoords="offset points")
        axes.set_xlabel(labels[cost])
    panels[0].set_ylabel(label_of(sweep.metric))
    return finish(figure)


def plot_progress(sweeps: Mapping[str, Sweep]) -> Figure:
    """The best full-length score over the epochs that all trials have run; a line for each sweep."""
    figure, axes = new_figure(8.2, 3.0)
    colours = dict(zip(sweeps, cycle((BLUE, ORANGE, GREEN, RED, GREY)), strict=False))
    for name, sweep in sweeps.items():
        trials = sweep.trials.sort_values("ended", kind="stable")
        finals = (sweep.sign * trials.score).where(trials.state == "completed").cummax().ffill()
        spent = trials.epochs_done.cumsum()
        axes.step(spent, sweep.sign * unit_of(sweep.metric) * finals, where="post", color=colours[name], label=name)
    axes.set(xlabel="epochs spent by all trials", ylabel=f"best {label_of(sweep.metric)}")
    if len(sweeps) > 1:
        figure.legend(loc="outside upper left", ncols=5, fontsize=8, frameon=False)  # it covers no line
    return finish(figure)
