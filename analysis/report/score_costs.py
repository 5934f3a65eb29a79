"""What scores cost, and what stopping early saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep


def pareto_front(cost: Any, score: Any) -> np.ndarray:
    """Which of n points no other beats: cheaper and at least as good, or better and at most as dear; shape (n,)."""
    cost, score = np.asarray(cost, dtype=float), np.asarray(score, dtype=float)
    front = np.zeros(len(cost), dtype=bool)
    best = -np.inf
    for place in np.lexsort((-score, cost)):
        if score[place] > best:
            front[place], best = True, score[place]
    return front


def measure_savings(sweep: Sweep) -> dict[str, float]:
    """Epochs and seconds spent, and what they would have been had every stopped trial run to its end.

    Seconds of epochs that never ran are taken to be as long as the trial's own were.
    """
    trials = sweep.trials[sweep.trials.epochs_done > 0]
    stopped = (trials.state == "stopped") | (trials.state == "paused")
    pace = trials.seconds / trials.epochs_done
    full = np.where(stopped, trials.epochs, trials.epochs_done)
    return {
        "epochs": float(trials.epochs_done.sum()),
        "epochs_full": float(full.sum()),
        "seconds": float(trials.seconds.sum()),
        "seconds_full": float((pace * full).sum()),
        "stopped": float(stopped.sum()),
    }


def compare_at_equal_time(sweep: Sweep, count: int = 5) -> pd.DataFrame:
    """The best trials beside the best baseline: at their last epoch, and when the baseline's training time was over.

    Scores in the metric's own unit; `at_equal_time` is NaN where not even one epoch had ended by then.
    """
    done = sweep.completed
    base = done[done.is_baseline].head(1)
    rows = []
    for trial in pd.concat([done[~done.is_baseline].head(count), base]).itertuples():
        curve = sweep.curves[sweep.curves.trial == trial.trial]
        limit = float(base.seconds.iloc[0]) if len(base) else np.nan
        then = curve[curve.train_seconds <= limit + 1e-9].score if "train_seconds" in curve else curve.score[:0]
        rows.append(
            {"trial": trial.trial, "is_baseline": trial.is_baseline, "score": trial.score, "seconds": trial.seconds}
            | {"at_equal_time": then.iloc[-1] if len(then) else np.nan}
        )
    return pd.DataFrame(rows, columns=["trial", "is_baseline", "score", "seconds", "at_equal_time"])
