"""Which scores can belong to the best of several candidates, given that it was picked among them (Gupta 1965)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

LEVEL = 0.95

# baseline: the best is a baseline. noise: its lead is within one standard error of the difference.
# luck: the lead is no larger than the best of so many can have by luck. clear: it is larger.
Lead = Literal["baseline", "noise", "luck", "clear"]


@dataclass(frozen=True)
class Candidate:
    """One completed trial: its name, its score and the standard error of that score."""

    name: str
    score: float
    standard_error: float
    is_baseline: bool = False


@dataclass(frozen=True)
class Selection:
    """The best of `count` candidates, and how clearly it is the best.

    `tied` are the candidates that can be the best at 95 %, the best one first. `luck` is the largest difference between
    them that luck explains. `gap` is the best one's lead over `baseline`, the best baseline, and `error` the standard
    error of that lead; `lead` is the verdict on it, None if there is no baseline.
    """

    count: int
    tied: tuple[Candidate, ...]
    luck: float
    baseline: Candidate | None
    gap: float
    error: float
    lead: Lead | None

    @property
    def best(self) -> Candidate:
        return self.tied[0]


def error_of_difference(one: float, other: float) -> float:
    """The standard error of a difference between two scores, from the standard error of each.

    It holds for independent scores. Trials are validated on the same images, so their errors mostly rise and fall
    together, and the true standard error is smaller.
    """
    return (one**2 + other**2) ** 0.5


def luck_of_best(count: int) -> float:
    """The lead over the truly best candidate that the best of `count` scores can have by luck, at 95 %.

    It is in standard errors of a difference. The truly best candidate is, at 95 %, among those that are no further
    behind. The normal quantile is Bonferroni's: it holds for any correlation between the scores, and for a single
    comparison that was fixed beforehand.
    """
    return NormalDist().inv_cdf(1 - (1 - LEVEL) / max(1, count - 1))


def judge_best(candidates: Sequence[Candidate]) -> Selection:
    """Decide which candidates can be the best, and how clear the best one's lead over the baseline is.

    Args:
        candidates: All completed trials, the best first; at least one.
    """
    best, luck = candidates[0], luck_of_best(len(candidates))
    errors = [error_of_difference(best.standard_error, other.standard_error) for other in candidates]
    gaps = [abs(best.score - other.score) for other in candidates]
    places = [i for i in range(1, len(candidates)) if gaps[i] <= luck * errors[i]]
    base = next((i for i, candidate in enumerate(candidates) if candidate.is_baseline), None)
    return Selection(
        count=len(candidates),
        tied=(best, *(candidates[i] for i in places)),
        luck=max((luck * errors[i] for i in places), default=0.0),
        baseline=None if base is None else candidates[base],
        gap=0.0 if base is None else gaps[base],
        error=0.0 if base is None else errors[base],
        lead=None if base is None else _judge_lead(base == 0, gaps[base], errors[base], luck),
    )


def _judge_lead(is_baseline: bool, gap: float, error: float, luck: float) -> Lead:
    if is_baseline:
        return "baseline"
    return "noise" if gap <= error else "luck" if gap <= luck * error else "clear"
