"""The data that a model is fitted to: the point and the score of each full-length trial of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.effects.search_parameters import SearchParameter, encode, list_parameters

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

# The model uses at most this many trials, spread evenly over the sweep: its time grows with the cube of their number.
TRIALS = 800


@dataclass(frozen=True)
class Design:
    """The n full-length trials.

    `points` has shape (n, parameters), `recipes` is flat, and higher `scores`, shape (n,), are better: `sign` times the
    metric. `baseline` is the point that effects are measured from: the best baseline. `tried` has the flat recipes of
    all trials of the sweep, also of those that did not run to full length.
    """

    parameters: list[SearchParameter]
    points: pd.DataFrame
    recipes: pd.DataFrame
    scores: np.ndarray
    baseline: pd.Series
    tried: pd.DataFrame
    sign: int


def make_design(sweep: Sweep) -> Design:
    """The design of a sweep with at least one trial. Without a baseline, effects are measured from the best trial."""
    full = sweep.completed.sort_values("trial")
    full = full.iloc[:: -(-len(full) // TRIALS) or 1]
    recipes = sweep.recipes
    parameters = list_parameters(sweep.space.recipe)
    ranked = pd.concat([sweep.completed[sweep.completed.is_baseline], sweep.completed, sweep.trials])
    base = recipes.loc[[ranked.trial.iloc[0]]]
    points = encode(parameters, pd.concat([recipes.loc[full.trial], base]))
    scores = sweep.sign * full.score.to_numpy(dtype=float)
    return Design(parameters, points.iloc[:-1], recipes.loc[full.trial], scores, points.iloc[-1], recipes, sweep.sign)
