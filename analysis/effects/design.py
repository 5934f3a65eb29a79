"""A sweep as what a model is fitted to: where each trial of full length lies in the space's holes, and its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.effects.search_parameters import Hole, encode, list_holes

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

TRIALS = 800  # that enter the model, spread evenly over the sweep; the time it takes grows with their cube


@dataclass(frozen=True)
class Design:
    """The n trials of full length."""

    holes: list[Hole]
    points: pd.DataFrame  # (n, parameters)
    recipes: pd.DataFrame  # flat
    scores: np.ndarray  # (n,); higher is better
    baseline: pd.Series  # the point that effects are measured from: the best baseline
    tried: pd.DataFrame  # the flat recipes of all trials, however they ended
    sign: int  # of scores as a person reads them


def make_design(sweep: Sweep) -> Design:
    """Of a sweep with at least one trial; one without a baseline is measured from its best trial."""
    full = sweep.completed.sort_values("trial")
    full = full.iloc[:: -(-len(full) // TRIALS) or 1]
    recipes = sweep.recipes
    holes = list_holes(sweep.space.recipe)
    ranked = pd.concat([sweep.completed[sweep.completed.is_baseline], sweep.completed, sweep.trials])
    base = recipes.loc[[ranked.trial.iloc[0]]]
    points = encode(holes, pd.concat([recipes.loc[full.trial], base]))
    scores = sweep.sign * full.score.to_numpy(dtype=float)
    return Design(holes, points.iloc[:-1], recipes.loc[full.trial], scores, points.iloc[-1], recipes, sweep.sign)
