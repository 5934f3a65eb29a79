"""How sure a mean over seeds is, and which recipes it tells apart: intervals that all hold at once (Dunn 1961).

Each of `comparisons` intervals is widened to the level 1 - 0.05 / comparisons (Bonferroni). So the interval of whichever
recipe comes out best holds as well: nothing is assumed about how it was chosen among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def mean_interval(values: Sequence[float], comparisons: int = 1) -> Interval:
    """Student's interval of the mean of two or more independent values."""
    numbers = np.asarray(values, dtype=float)
    mean, error = float(numbers.mean()), float(numbers.std(ddof=1) / len(numbers) ** 0.5)
    half = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, len(numbers) - 1)) * error
    return Interval(mean, mean - half, mean + half)


def score_interval(metric: str, values: Sequence[float], comparisons: int = 1) -> Interval:
    """Of a mean score, within what the metric can be: a few seeds far apart say no more than that."""
    found = mean_interval(values, comparisons)
    return Interval(found.mean, max(found.low, 0.0), found.high if metric == "val_loss" else min(found.high, 1.0))


def paired_interval(values: Sequence[float], others: Sequence[float], comparisons: int = 1) -> Interval:
    """Of the mean difference, seed by seed: what a seed does to both falls out."""
    return mean_interval(np.subtract(values, others).tolist(), comparisons)


def rank_ranges(scores: Mapping[str, Sequence[float]], sign: int) -> dict[str, tuple[int, int]]:
    """The ranks each may have, best 1: all of these hold at once (Mogstad, Romano, Shaikh and Wilhelm 2024).

    `scores` are paired by seed; `sign` is 1 where higher is better, else -1.
    """
    pairs = len(scores) * (len(scores) - 1) // 2

    def beats(one: str, other: str) -> bool:
        ahead = paired_interval(scores[one], scores[other], pairs)
        return (ahead.low if sign > 0 else -ahead.high) > 0

    ranges = {}
    for name in scores:
        others = [other for other in scores if other != name]
        worse, better = sum(beats(name, o) for o in others), sum(beats(o, name) for o in others)
        ranges[name] = (1 + better, len(scores) - worse)
    return ranges


def share_interval(count: int, total: int) -> Interval:
    """Of a share of independent images, as an accuracy is (Wilson 1927)."""
    found = stats.binomtest(count, total).proportion_ci(LEVEL, method="wilson")
    return Interval(count / total, float(found.low), float(found.high))
