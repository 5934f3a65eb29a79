"""A sweep as what a model is fitted to: each trial's point in its holes, and its score at each rung it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.holes import Hole, encode, list_holes

if TYPE_CHECKING:
    from analysis.load import Sweep

RUNGS = 5  # told apart; where trials stop at more places, these are merged at powers of two
TRIALS = 400  # that enter the model, those that came furthest first; the time it takes grows with their cube
LOST = ("diverged", "failed", "out_of_memory")


@dataclass(frozen=True)
class Design:
    """The trials of a sweep as points, and how far each came; of n trials and h holes."""

    holes: list[Hole]
    points: pd.DataFrame  # (n, parameters)
    recipes: pd.DataFrame  # flat
    stages: list[np.ndarray]  # scores at each rung and at the end, each (n,); higher is better
    baseline: pd.Series  # the point that effects are measured from

    sign: int  # of the scores shown to a person

    @property
    def full(self) -> np.ndarray:
        """Which trials ran to full length, (n,)."""
        return ~np.isnan(self.stages[-1])


def make_design(sweep: Sweep) -> Design:
    trials = sweep.trials[~sweep.trials.state.isin(LOST) & sweep.trials.score.notna()]
    furthest = trials.epochs_done / trials.epochs
    trials = trials.loc[furthest.sort_values(ascending=False, kind="stable").index[:TRIALS]].sort_index()
    recipes = sweep.recipes.loc[trials.trial]
    holes = list_holes(sweep.space.recipe)
    points = encode(holes, recipes)
    base = trials[trials.is_baseline]
    base = base if len(base) else trials
    best = base.trial[(sweep.sign * base.score).where(base.state == "completed", -np.inf).idxmax()]
    return Design(holes, points, recipes, find_stages(sweep, trials), points.loc[best], sweep.sign)


def find_stages(sweep: Sweep, trials: pd.DataFrame) -> list[np.ndarray]:
    """The scores of these trials where trials were stopped, and at the end; NaN for those that did not come so far."""
    share = (trials.epochs_done / trials.epochs).to_numpy()
    ended = (trials.state == "completed").to_numpy()
    stops = np.unique(share[~ended])
    if len(stops) > RUNGS:
        stops = np.unique(2.0 ** np.ceil(np.log2(stops)))
    curves = sweep.curves.merge(trials[["trial", "epochs"]], on="trial")
    curves["share"] = curves.epoch / curves.epochs
    stages, before = [], 0.0
    for stop in stops[stops < 1]:
        reached = curves[curves.share <= stop + 1e-9].groupby("trial").score.last()
        scores = sweep.sign * trials.trial.map(reached).to_numpy()
        # One that was stopped between the rungs merged here is taken as it was there.
        stages.append(np.where(share > before + 1e-9, scores, np.nan))
        before = stop
    stages.append(np.where(ended, sweep.sign * trials.score.to_numpy(), np.nan))
    return stages
