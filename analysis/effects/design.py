"""The data that a model is fitted to, the full-length trials of a sweep, and the contrasts that are asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.effects.effect_model import Contrast
from analysis.effects.search_parameters import Level, SearchParameter, encode, encode_draw, likeness, list_parameters

if TYPE_CHECKING:
    from ledger.tables import Sweep

# The model uses about this many trials at most, spread evenly over the sweep, and those that are compared: its time
# grows with the cube of their number.
TRIALS = 800
REFERENCES = 64  # An effect is a mean over this many recipes.
_DRAWN: dict[tuple[str, str, str, int], pd.DataFrame] = {}


@dataclass(frozen=True)
class Design:
    """The n full-length trials.

    `points` has shape (n, parameters), `recipes` is flat, and higher `scores`, shape (n,), are better: `sign` times the
    metric. `errors` are their standard errors on the validation images. `baseline` is the point that effects are measured
    from: the best baseline. `tried` has the flat recipes of all different trials, also of those that did not run to full
    length.
    """

    parameters: list[SearchParameter]
    points: pd.DataFrame
    recipes: pd.DataFrame
    scores: np.ndarray
    errors: np.ndarray
    baseline: pd.Series
    tried: pd.DataFrame
    sign: int

    @cached_property
    def similarities(self) -> np.ndarray:
        """The similarity of the trials in each parameter, shape (parameters, n, n)."""
        each = [likeness(parameter, self.points, self.points) for parameter in self.parameters]
        return np.stack(each) if each else np.zeros((0, len(self.points), len(self.points)))

    @cached_property
    def references(self) -> pd.DataFrame:
        """The best recipes that ran to full length, repeated if there are fewer than `REFERENCES`."""
        order = np.argsort(-self.scores, kind="stable")[:REFERENCES]
        return self.points.iloc[np.resize(order, REFERENCES)]

    @cached_property
    def reference_similarities(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The similarities of the references to the trials and to each other, in each parameter."""
        return [_compare(parameter, self.references, self) for parameter in self.parameters]


def make_design(sweep: Sweep) -> Design:
    """The design of a sweep with at least one trial. Without a baseline, effects are measured from the best trial."""
    done, recipes, parameters = sweep.completed, sweep.recipes, list_parameters(sweep.space.recipe)
    base = pd.concat([sweep.baselines, done, sweep.trials]).trial.iloc[0]
    spread = done.sort_values("trial").trial.iloc[:: -(-len(done) // TRIALS) or 1]
    full = done[done.trial.isin([*spread, base, *done.trial.iloc[:1]])].sort_values("trial")
    points = encode(parameters, recipes.loc[[*full.trial, base]])
    return Design(
        parameters,
        points.iloc[:-1],
        recipes.loc[full.trial],
        sweep.sign * full.score.to_numpy(dtype=float),
        full.standard_error.to_numpy(dtype=float),
        points.iloc[-1],
        recipes.loc[sweep.different.trial],
        sweep.sign,
    )


def _draw(parameter: SearchParameter, level: Level, seed: int) -> pd.DataFrame:
    """Points of a level. They depend on the space alone, so the pages of a running sweep share them."""
    key = (parameter.name, repr(parameter.domain), repr(level.part), seed)
    if key not in _DRAWN:
        _DRAWN[key] = pd.DataFrame([encode_draw(parameter, level.part, seed + number) for number in range(REFERENCES)])
    return _DRAWN[key]


def _compare(parameter: SearchParameter, references: pd.DataFrame, design: Design) -> tuple[np.ndarray, np.ndarray]:
    return likeness(parameter, references, design.points), likeness(parameter, references, references)


@dataclass(frozen=True)
class Change:
    """The change in similarity from a level instead of the baseline's choice, for each reference recipe.

    `to_trials` is the change to each trial, shape (references, n); `to_itself` is that of the change to itself, shape
    (references, references).
    """

    parameter: SearchParameter
    to_trials: np.ndarray
    to_itself: np.ndarray

    @staticmethod
    def make(design: Design, level: Level, seed: int) -> Change:
        parameter = level.parameter
        on, off = _draw(parameter, level, seed), design.baseline.to_frame().T  # one row, for all references
        to_trials = likeness(parameter, on, design.points) - likeness(parameter, off, design.points)
        between = likeness(parameter, on, off)
        to_itself = likeness(parameter, on, on) - between - between.T + likeness(parameter, off, off)
        return Change(parameter, to_trials, to_itself)

    def cross(self, other: Change, parameters: list[SearchParameter]) -> Contrast:
        """The contrast of the interaction between two changes."""
        places = (parameters.index(self.parameter), parameters.index(other.parameter))
        pair = (self.to_trials * other.to_trials).mean(axis=0)
        return Contrast(places, np.zeros(len(pair)), pair, 0.0, np.mean(self.to_itself * other.to_itself))


def make_contrast(design: Design, level: Level, seed: int, elsewhere: Design | None = None) -> Contrast:
    """The contrast of a level's mean effect over the recipes that ran to full length; the seed is that of its draws.

    With `elsewhere`, these are the recipes of another design in the same search parameters.
    """
    change = Change.make(design, level, seed)
    if elsewhere is None:
        alike = design.reference_similarities
    else:
        alike = [_compare(parameter, elsewhere.references, design) for parameter in design.parameters]
    pair = np.zeros((len(design.points), len(design.parameters)))
    pair_variance = np.zeros(len(design.parameters))
    for place, parameter in enumerate(design.parameters):
        if parameter is not level.parameter:
            to_trials, to_each_other = alike[place]
            pair[:, place] = (change.to_trials * to_trials).mean(axis=0)
            pair_variance[place] = (change.to_itself * to_each_other).mean()
    main = change.to_trials.mean(axis=0)
    return Contrast(
        (design.parameters.index(level.parameter),), main, pair, float(change.to_itself.mean()), pair_variance
    )
