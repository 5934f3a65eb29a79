"""A curve as one line of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # characters of a curve at most


def draw_curve(values: Sequence[float], low: float, high: float) -> str:
    """Draw values with one character for some of them each: the height is their mean, between `low` and `high`."""
    means = np.array([part.mean() for part in np.array_split(np.array(values), min(WIDTH, len(values)))])
    shares = (means - low) / (high - low) if high > low else np.ones(len(means))
    return "".join(BARS[height] for height in np.minimum((shares * len(BARS)).astype(int), len(BARS) - 1))
