"""What early scores say about later ones: correlations between rungs for ASHA, and forecasts for the sampler."""

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

_FEWEST = 4  # with fewer pairs, only the expected correlation counts
_PAST = 200  # only so many pairs count, the latest
_LARGEST = 0.99  # a larger correlation counts as this one
_SMALLEST_SHARE = 0.02  # a smaller share that passed counts as this one
_NORMAL = NormalDist()
SHARES = (1 / 27, 1 / 9, 1 / 3, 2 / 3)  # shares of a trial's own length at which trials are compared
_ENOUGH = 3  # number of trials that a line needs


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
        known, correlation = self._correlations.get((rung, later), (0, 0.0))
        if known != len(pairs):
            correlation = _rank_correlation(pairs[-_PAST:])
            self._correlations[rung, later] = len(pairs), correlation
        spread = _spread_of_best(passed)
        correlation /= math.sqrt(correlation**2 + spread**2 * (1 - correlation**2))
        correlation = max(-_LARGEST, min(_LARGEST, correlation))
        shown = len(pairs) - 1
        return math.tanh((math.atanh(expected) * weight + math.atanh(correlation) * shown) / (weight + shown))


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
    if share >= 1:
        return 1.0
    share = max(share, _SMALLEST_SHARE)
    threshold = _NORMAL.inv_cdf(1 - share)
    mean = _NORMAL.pdf(threshold) / share
    return math.sqrt(1 + threshold * mean - mean**2)


def forecast_finals(reached: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the final score of each trial, known or forecast; NaN for a trial shorter than the first of SHARES.

    `reached` has a row for each trial, its `scores_at_shares`, and `ends` its final score; NaN if it did not run to its end.
    The forecast is by lines through the trials that continued (Kennedy and O'Hagan 2000).
    From the last share back to the first, a line is fitted to (score there, final score) of the trials that continued;
    trials among them that have not finished use their forecast. If no trial continued, the scores are used unchanged.
    """
    finals = ends.copy()
    for scores in reached.T[::-1]:
        known = ~np.isnan(scores) & ~np.isnan(finals)
        open_ = ~np.isnan(scores) & np.isnan(finals)
        finals[open_] = scores[open_]
        if known.any() and open_.any():
            finals[open_] = _draw_line(scores[known], finals[known], scores[open_])
    return finals


def scores_at_shares(curve: Mapping[float, float]) -> list[float]:
    """Return the score at each of SHARES, to the nearest epoch; NaN if the trial did not reach it.

    `curve` has the best score so far by share of the trial's own length.
    """
    shares = sorted(curve)
    slack = shares[0] / 2  # half an epoch, if the trial reported its first epoch
    row = []
    for share in SHARES:
        until = [s for s in shares if s <= share + slack]
        row.append(curve[until[-1] if until else shares[0]] if shares[-1] >= share - slack else np.nan)
    return row


def _draw_line(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    spread = ((x - x.mean()) ** 2).sum()
    slope = 1.0
    if len(x) >= _ENOUGH:
        slope = max(0.0, ((x - x.mean()) * (y - y.mean())).sum() / (spread + 1e-5 * y.var() + 1e-12))
    return y.mean() + slope * (at - x.mean())
