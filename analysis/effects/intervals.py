"""How sure a mean over seeds is, and which recipes it tells apart: intervals that all hold at once (Dunn 1961).

Each of `comparisons` intervals is widened to the level 1 - 0.05 / comparisons (Bonferroni). So the interval of whichever
recipe comes out best holds as well: nothing is assumed about how it was chosen among them. The noise is pooled over all
recipes of a comparison, as few seeds of one say little of it.
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


@dataclass(frozen=True)
class Noise:
    """Standard deviation of one value, or of one difference, and the degrees of freedom it was found with."""

    deviation: float
    freedom: int


Scores = Mapping[str, Sequence[float]]  # by recipe; each has one score for each seed, in the same order


def score_noise(scores: Scores) -> Noise:
    """What a seed changes in a recipe's score, pooled over the recipes."""
    table = _table(scores)
    left = table - table.mean(axis=1, keepdims=True)
    return _pool(left, len(table) * (table.shape[1] - 1), table)


def difference_noise(scores: Scores) -> Noise:
    """What a seed changes in the difference of two recipes trained on it: the residual of randomized blocks, twice over.

    What a seed does to all recipes alike falls out (Fisher 1935). Of two recipes it is the paired t test's.
    """
    table = _table(scores)
    left = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    noise = _pool(left, (len(table) - 1) * (table.shape[1] - 1), table)
    return Noise(2**0.5 * noise.deviation, noise.freedom)


def _table(scores: Scores) -> np.ndarray:
    return np.array(list(scores.values()), dtype=float)


def _pool(residuals: np.ndarray, freedom: int, scores: np.ndarray) -> Noise:
    # Scores count images, so few seeds may come out equal by rounding: that is no proof that there is no noise.
    gaps = np.diff(np.unique(scores))
    step = float(gaps[gaps > 1e-9].min(initial=np.inf))
    rounding = step**2 / 12 if np.isfinite(step) else 0.0
    return Noise(float((residuals**2).sum() / freedom + rounding) ** 0.5, freedom)


def mean_interval(values: Sequence[float], noise: Noise, comparisons: int = 1) -> Interval:
    """Student's interval of the mean of independent values, or differences, of known noise."""
    mean = float(np.mean(values))
    level = 1 - (1 - LEVEL) / 2 / comparisons
    half = float(stats.t.ppf(level, noise.freedom)) * noise.deviation / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half)


def score_interval(metric: str, values: Sequence[float], noise: Noise, comparisons: int = 1) -> Interval:
    """Of a mean score, within what the metric can be: a few seeds far apart say no more than that."""
    found = mean_interval(values, noise, comparisons)
    return Interval(found.mean, max(found.low, 0.0), found.high if metric == "val_loss" else min(found.high, 1.0))


def paired_interval(scores: Scores, one: str, other: str, comparisons: int = 1) -> Interval:
    """Of how far the mean of one recipe lies above another's."""
    return mean_interval(np.subtract(scores[one], scores[other]).tolist(), difference_noise(scores), comparisons)


def rank_ranges(scores: Scores, sign: int) -> dict[str, tuple[int, int]]:
    """The ranks each may have, best 1: all of these hold at once (Mogstad, Romano, Shaikh and Wilhelm 2024).

    `sign` is 1 where higher is better, else -1.
    """
    pairs = len(scores) * (len(scores) - 1) // 2

    def beats(one: str, other: str) -> bool:
        ahead = paired_interval(scores, one, other, pairs)
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
