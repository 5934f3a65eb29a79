"""Contrasts for a fitted model: the change in score from a level instead of the baseline's choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.effects.design import Design
from analysis.effects.effect_model import Contrast
from analysis.effects.search_parameters import Level, SearchParameter, encode_draw, likeness

REFERENCES = 64  # An effect is a mean over this many recipes.


def _references(design: Design) -> pd.DataFrame:
    """The best recipes that ran to full length, repeated if there are fewer than `REFERENCES`."""
    order = np.argsort(-design.scores, kind="stable")[:REFERENCES]
    return design.points.iloc[np.resize(order, REFERENCES)]


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
        on = pd.DataFrame([encode_draw(parameter, level.part, seed + number) for number in range(REFERENCES)])
        own = [
            name
            for name in design.points
            if name == parameter.name or name.startswith((f"{parameter.name}[", f"{parameter.name}."))
        ]
        off = pd.DataFrame([design.baseline[own]] * REFERENCES)
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
    references = _references(elsewhere or design)
    pair = np.zeros((len(design.points), len(design.parameters)))
    pair_variance = np.zeros(len(design.parameters))
    for place, parameter in enumerate(design.parameters):
        if parameter is not level.parameter:
            pair[:, place] = (change.to_trials * likeness(parameter, references, design.points)).mean(axis=0)
            pair_variance[place] = (change.to_itself * likeness(parameter, references, references)).mean()
    main = change.to_trials.mean(axis=0)
    return Contrast(
        (design.parameters.index(level.parameter),), main, pair, float(change.to_itself.mean()), pair_variance
    )
