"""Rank correlations between the scores at a rung and later scores, from the trials of the sweep itself."""

import math
from statistics import NormalDist

import numpy as np

_FEWEST = 4  # with fewer pairs, only the expected correlation counts
_PAST = 200  # only so many pairs count, the latest
_LARGEST = 0.99  # a larger correlation counts as this one
_SMALLEST_SHARE = 0.02  # a smaller share that passed counts as this one
_NORMAL = NormalDist()


class Evidence:
    """Pairs of scores, each pair of one trial at two rungs, or at a rung and at its end; higher scores are better."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int | None], list[tuple[float, float]]] = {}
        self._correlations: dict[tuple[int, int | None], tuple[int, float]] = {}  # with the number of pairs

    def add(self, rung: int, later: int | None, score: float, later_score: float) -> None:
        """Add a trial's best scores at a rung and at a later one, or at its end (`later=None`)."""
        self._pairs.setdefault((rung, later), []).append((score, later_score))

    def correlate(self, rung: int, later: int | None, passed: float, expected: float, weight: int) -> float:
        """Return the estimated correlation over all trials, although only their best share `passed` has both scores.

        The pairs' rank correlation is corrected for that selection (Thorndike 1949, case 2, for normal scores), then
        averaged with the `expected` one after Fisher's transformation; the expected one counts as `weight` pairs.
        """
        pairs = self._pairs.get((rung, later), [])
        if len(pairs) < _FEWEST:
            return expected
        known, found = self._correlations.get((rung, later), (0, 0.0))
        if known != len(pairs):
            found = _rank_correlation(pairs[-_PAST:])
            self._correlations[rung, later] = len(pairs), found
        spread = _spread_of_best(passed)
        found /= math.sqrt(found**2 + spread**2 * (1 - found**2))
        found = max(-_LARGEST, min(_LARGEST, found))
        weights = weight, len(pairs) - 1
        return math.tanh(float(np.average([math.atanh(expected), math.atanh(found)], weights=weights)))


def _rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Return Spearman's correlation; 0 if all scores at one place are equal."""
    early, late = (_ranks(np.array(scores)) for scores in zip(*pairs, strict=True))
    if not (early.any() and late.any()):
        return 0.0
    return float(early @ late / math.sqrt((early @ early) * (late @ late)))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the rank of each score minus the mean rank; equal scores share a rank.

    As scipy.stats.rankdata, whose import takes a second in every driver.
    """
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ranks[places] - (len(scores) + 1) / 2


def _spread_of_best(share: float) -> float:
    """Return the standard deviation of the best `share` of a standard normal variable."""
    if share >= 1:
        return 1.0
    share = max(share, _SMALLEST_SHARE)
    threshold = _NORMAL.inv_cdf(1 - share)
    mean = _NORMAL.pdf(threshold) / share
    return math.sqrt(1 + threshold * mean - mean**2)
