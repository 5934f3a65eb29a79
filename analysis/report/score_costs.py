"""The cost of scores, and what early stopping saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep


@dataclass(frozen=True)
class Savings:
    """Epochs and seconds that a sweep ran, and those that it would have run without early stopping."""

    epochs: float
    epochs_full: float
    seconds: float
    seconds_full: float
    stopped: int  # trials that were stopped or paused


def pareto_front(cost: ArrayLike, score: ArrayLike) -> np.ndarray:
    """A mask of the points that no other point beats in both cost and score.

    Args:
        cost: Lower is better, shape (n,).
        score: Higher is better, shape (n,).

    Returns:
        A mask of shape (n,). Of equal points it has the first only.
    """
    cost, score = np.asarray(cost, dtype=float), np.asarray(score, dtype=float)
    front = np.zeros(len(cost), dtype=bool)
    best = -np.inf
    for place in np.lexsort((-score, cost)):
        if score[place] > best:
            front[place], best = True, score[place]
    return front


def measure_savings(sweep: Sweep) -> Savings:
    """Compare what a sweep ran with what it would have run without early stopping.

    Each epoch that never ran counts as long as the mean of the trial's own epochs.
    """
    trials = sweep.trials[sweep.trials.epochs_done > 0]
    stopped = (trials.state == "stopped") | (trials.state == "paused")
    pace = trials.seconds / trials.epochs_done
    full = np.where(stopped, trials.epochs, trials.epochs_done)
    return Savings(
        epochs=float(trials.epochs_done.sum()),
        epochs_full=float(full.sum()),
        seconds=float(trials.seconds.sum()),
        seconds_full=float((pace * full).sum()),
        stopped=int(stopped.sum()),
    )


def compare_at_equal_time(sweep: Sweep, count: int = 5) -> pd.DataFrame:
    """Compare the best trials with the best baseline: at their last epoch, and after the baseline's training time.

    Scores are in the metric's own unit. `at_equal_time` is NaN if no epoch of the trial had ended by that time.
    """
    done = sweep.completed
    base = done[done.is_baseline].head(1)
    rows = []
    for trial in pd.concat([done[~done.is_baseline].head(count), base]).itertuples():
        curve = sweep.curves[sweep.curves.trial == trial.trial]
        limit = float(base.seconds.iloc[0]) if len(base) else np.nan
        then = curve[curve.seconds <= limit + 1e-9].score if "seconds" in curve else curve.score[:0]
        rows.append(
            {"trial": trial.trial, "is_baseline": trial.is_baseline, "score": trial.score, "seconds": trial.seconds}
            | {"at_equal_time": then.iloc[-1] if len(then) else np.nan}
        )
    return pd.DataFrame(rows, columns=["trial", "is_baseline", "score", "seconds", "at_equal_time"])
