"""Plots of scores over their costs: seconds, memory and calibration error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from analysis.report.plots.plot_style import BLUE, GREY, INK, MANY, ORANGE, finish, new_figure, wrap_axes
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
    figure, grid = new_figure(8.2, 2.8, 1, max(1, len(costs)), sharey=True)
    unit = unit_of(sweep.metric)
    for axes, cost in zip(wrap_axes(grid), costs, strict=False):
        done = sweep.completed[sweep.completed[cost].notna()]
        front = done[pareto_front(done[cost], sweep.sign * done.score)].sort_values(cost)
        axes.step(front[cost], unit * front.score, where="post", color=BLUE, linewidth=1, alpha=0.6)
        colours = np.where(done.is_baseline, ORANGE, np.where(done.trial.isin(front.trial), BLUE, GREY))
        axes.scatter(done[cost], unit * done.score, c=colours, s=18, rasterized=len(done) > MANY)
        for trial in front.itertuples():
            axes.annotate(
                f"{trial.trial:04d}",
                (getattr(trial, cost), unit * trial.score),
                fontsize=7,
                xytext=(3, 3),
                textcoords="offset points",
                color=INK,
            )
        axes.set_xlabel(labels[cost])
    wrap_axes(grid)[0].set_ylabel(label_of(sweep.metric))
    return finish(figure)


def plot_equal_time(sweep: Sweep, count: int = 5) -> Figure:
    """The best trials and the best baseline over epochs, and the same over seconds of training."""
    figure, (left, right) = new_figure(8.2, 2.9, 1, 2, sharey=True)
    done, unit = sweep.completed, unit_of(sweep.metric)
    base = done[done.is_baseline].head(1)
    shown = pd.concat([done[~done.is_baseline].head(count), base])
    for trial in shown.itertuples():
        curve = sweep.curves[sweep.curves.trial == trial.trial]
        style = {"color": ORANGE if trial.is_baseline else BLUE, "linewidth": 1.8 if trial.is_baseline else 1.1}
        left.plot(curve.epoch, unit * curve.score, **style)
        if "seconds" in curve:
            right.plot(curve.seconds, unit * curve.score, **style)
    left.set(xlabel="epoch", ylabel=label_of(sweep.metric), title="at equal epochs")
    right.set(xlabel="training (s)", title="at equal time (orange: baseline)")
    return finish(figure)
