"""What the scores at one rung tell about later ones: rank correlations from the sweep's own trials."""

import math
from statistics import NormalDist

import numpy as np

NEXT = 0.87  # correlation between adjacent rungs before there are trials to measure it on
END = 0.9  # correlation between the last rung and the end, likewise
WEIGHT_NEXT = 6  # how many trials the expected correlation counts for
WEIGHT_END = 3  # few, because a rule that stops the winners must end soon
LOWEST = 0.05  # correlations below it are treated alike: the rung tells nothing
_FEWEST = 4  # pairs below which only the expected correlation counts
_PAST = 200  # pairs that count, the last ones
_LIMIT = 0.99
_NORMAL = NormalDist()


class Evidence:
    """Pairs of scores of the same trials at two places; higher scores are better."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int | None], list[tuple[float, float]]] = {}
        self._correlations: dict[tuple[int, int | None], tuple[int, float]] = {}  # with the number of pairs then

    def add(self, rung: int, later: int | None, score: float, later_score: float) -> None:
        """Add a trial's best scores at a rung and at a later one, or at its end (`later=None`)."""
        self._pairs.setdefault((rung, later), []).append((score, later_score))

    def correlate(self, rung: int, later: int | None, passed: float, expected: float, weight: int) -> float:
        """Return the estimated correlation over all trials, of which the best share `passed` reached the later place.

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
        found = max(-_LIMIT, min(_LIMIT, found))
        weights = weight, len(pairs) - 1
        return math.tanh(float(np.average([math.atanh(expected), math.atanh(found)], weights=weights)))


def _rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Return Spearman's correlation; 0 if all scores at one place are equal."""
    early, late = (_ranks(np.array(scores)) for scores in zip(*pairs, strict=True))
    if not (early.any() and late.any()):
        return 0.0
    return float(early @ late / math.sqrt((early @ early) * (late @ late)))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the rank of each score less the mean rank; equal scores share their mean rank."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ranks[places] - (len(scores) + 1) / 2


def _spread_of_best(share: float) -> float:
    """Return the standard deviation of the best `share` of a standard normal variable."""
    if share >= 1:
        return 1.0
    threshold = _NORMAL.inv_cdf(1 - max(share, 0.02))
    mean = _NORMAL.pdf(threshold) / max(share, 0.02)
    return math.sqrt(1 + threshold * mean - mean**2)
