"""Questions to a fitted model: what changes when a level is taken instead of the baseline's choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.effects.design import Design
from analysis.effects.effect_model import Contrast
from analysis.effects.search_parameters import Hole, Level, encode_draw, likeness

REFERENCES = 64  # recipes that an effect is averaged over


def _references(design: Design) -> pd.DataFrame:
    """The recipes that ran to full length, the best first, repeated where they are few."""
    order = np.argsort(-design.scores, kind="stable")[:REFERENCES]
    return design.points.iloc[np.resize(order, REFERENCES)]


@dataclass(frozen=True)
class Change:
    """What taking a level instead of the baseline's choice changes in likeness, for each reference."""

    hole: Hole
    to_trials: np.ndarray  # (references, n)
    to_itself: np.ndarray  # (references, references)

    @staticmethod
    def make(design: Design, level: Level, seed: int) -> Change:
        hole = level.hole
        on = pd.DataFrame([encode_draw(hole, level.part, seed + number) for number in range(REFERENCES)])
        own = [
            name for name in design.points if name == hole.name or name.startswith((f"{hole.name}[", f"{hole.name}."))
        ]
        off = pd.DataFrame([design.baseline[own]] * REFERENCES)
        to_trials = likeness(hole, on, design.points) - likeness(hole, off, design.points)
        between = likeness(hole, on, off)
        to_itself = likeness(hole, on, on) - between - between.T + likeness(hole, off, off)
        return Change(hole, to_trials, to_itself)

    def cross(self, other: Change, holes: list[Hole]) -> Contrast:
        """The interaction of two changes."""
        places = (holes.index(self.hole), holes.index(other.hole))
        pair = (self.to_trials * other.to_trials).mean(axis=0)
        return Contrast(places, np.zeros(len(pair)), pair, 0.0, np.mean(self.to_itself * other.to_itself))


def make_contrast(design: Design, level: Level, seed: int) -> Contrast:
    """The mean effect of a level over the recipes that ran to full length."""
    change = Change.make(design, level, seed)
    references = _references(design)
    pair = np.zeros((len(design.points), len(design.holes)))
    pair_variance = np.zeros(len(design.holes))
    for place, hole in enumerate(design.holes):
        if hole is not level.hole:
            pair[:, place] = (change.to_trials * likeness(hole, references, design.points)).mean(axis=0)
            pair_variance[place] = (change.to_itself * likeness(hole, references, references)).mean()
    main = change.to_trials.mean(axis=0)
    return Contrast((design.holes.index(level.hole),), main, pair, float(change.to_itself.mean()), pair_variance)
