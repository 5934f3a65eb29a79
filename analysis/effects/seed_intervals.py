"""Intervals for means over seeds and for their differences, which all hold at the same time (Dunn 1961).

Each of `comparisons` intervals is widened to the level 1 - 0.05 / comparisons (Bonferroni). Therefore the interval of
the best recipe holds too, without an assumption about how it was chosen. The noise is pooled over all recipes of a
comparison, because the few seeds of one recipe give a poor estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy import stats

LEVEL = 0.95  # of fresh seeds and test images; effects and leads have CONFIDENCE of `technique_effects`
NORMAL_95 = 1.96  # half the 95 % interval of a normal value, in standard errors


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width."""
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Noise:
    """The standard deviation of one value, or of one difference, and its degrees of freedom."""

    deviation: float
    freedom: int


Scores = Mapping[str, Sequence[float]]  # by recipe: one score for each seed, in the same order


def score_noise(scores: Scores) -> Noise:
    """The noise between seeds in a recipe's score, pooled over the recipes."""
    table = np.array(list(scores.values()), dtype=float)
    left = table - table.mean(axis=1, keepdims=True)
    return _pool(left, len(table) * (table.shape[1] - 1), table)


def difference_noise(scores: Scores) -> Noise:
    """The noise between seeds in the difference of two recipes: √2 times the residual of randomized blocks (Fisher 1935).

    The effect that a seed has on all recipes cancels. With two recipes, this is the noise of the paired t test.
    """
    table = np.array(list(scores.values()), dtype=float)
    left = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    noise = _pool(left, (len(table) - 1) * (table.shape[1] - 1), table)
    return Noise(2**0.5 * noise.deviation, noise.freedom)


def _pool(residuals: np.ndarray, freedom: int, scores: np.ndarray) -> Noise:
    # Scores are counts of images, so a few seeds can be equal because of rounding, although there is noise.
    gaps = np.diff(np.unique(scores))
    step = float(gaps[gaps > 1e-9].min(initial=np.inf))
    rounding = step**2 / 12 if np.isfinite(step) else 0.0
    return Noise(float((residuals**2).sum() / freedom + rounding) ** 0.5, freedom)


def mean_interval(values: Sequence[float], noise: Noise, comparisons: int = 1) -> Interval:
    """Student's interval for the mean of independent values or differences, one for each seed.

    `noise` is from `score_noise` or `difference_noise`; `comparisons` intervals must hold at the same time.
    """
    mean = float(np.mean(values))
    level = 1 - (1 - LEVEL) / 2 / comparisons
    half = float(stats.t.ppf(level, noise.freedom)) * noise.deviation / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half)


def score_interval(metric: str, values: Sequence[float], noise: Noise, comparisons: int = 1) -> Interval:
    """The interval of a mean score, cut to the range of the metric, which few seeds can exceed."""
    interval = mean_interval(values, noise, comparisons)
    highest = inf if metric == "val_loss" else 1.0
    return Interval(interval.mean, max(interval.low, 0.0), min(interval.high, highest))


def paired_interval(scores: Scores, one: str, other: str, comparisons: int = 1) -> Interval:
    """The interval of the mean of one recipe minus that of another."""
    return mean_interval(np.subtract(scores[one], scores[other]).tolist(), difference_noise(scores), comparisons)


def rank_ranges(scores: Scores, sign: int) -> dict[str, tuple[int, int]]:
    """The lowest and highest rank that each recipe can have, 1 for the best (Mogstad, Romano, Shaikh and Wilhelm 2024).

    All ranges hold at the same time. `sign` is 1 if a higher score is better, else -1.
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
    """The interval of a share of independent images, such as an accuracy (Wilson 1927)."""
    interval = stats.binomtest(count, total).proportion_ci(LEVEL, method="wilson")
    return Interval(count / total, float(interval.low), float(interval.high))
