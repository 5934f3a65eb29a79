"""Which scores may belong to the best of several, although the best was picked among them (Gupta 1965, subset selection)."""

from __future__ import annotations

from statistics import NormalDist

LEVEL = 0.95


def luck_of_best(count: int) -> float:
    """Standard errors of a difference by which the best of `count` scores may lead the truly best one by luck, at 95 %.

    Whoever is no further behind may be the best: the truly best one is among them at 95 %. The normal quantile is
    Bonferroni's, so that it holds whatever the correlation between scores, and for one comparison fixed beforehand too.
    """
    return NormalDist().inv_cdf(1 - (1 - LEVEL) / max(1, count - 1))
