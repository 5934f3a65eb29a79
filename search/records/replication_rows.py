"""The recipes of a confirmation and the techniques of an ablation as flat rows."""

from __future__ import annotations

from dataclasses import dataclass

from search.followup.replications.findings import Ablation, Confirmation, Worth


@dataclass(frozen=True)
class ConfirmedRow:
    """One recipe on fresh seeds: its mean score and what it is ahead of the baseline, each with its 95 % interval."""

    recipe: str
    searched: float | None
    mean: float
    low: float
    high: float
    best_rank: int
    worst_rank: int
    ahead: float | None
    ahead_low: float | None
    ahead_high: float | None


@dataclass(frozen=True)
class WorthRow:
    """The effect of one technique in one recipe, `winner` or `baseline`, with its 95 % interval; positive is better."""

    technique: str
    value: str
    recipe: str
    effect: float
    low: float
    high: float
    proven: bool
    likely: bool


def list_confirmed(found: Confirmation) -> list[ConfirmedRow]:
    """Return a row for each recipe, best first."""
    rows = []
    for one in found.recipes:
        mean, ahead = one.interval, one.ahead_of_baseline
        gain = (ahead.mean, ahead.low, ahead.high) if ahead else (None, None, None)
        rows.append(ConfirmedRow(one.label, one.searched, mean.mean, mean.low, mean.high, *one.ranks, *gain))
    return rows


def list_worths(found: Ablation) -> list[WorthRow]:
    """Return a row for each effect that was measured."""
    return [
        _describe(row.technique, row.value, recipe, worth)
        for row in found.techniques
        for recipe, worth in (("winner", row.in_winner), ("baseline", row.in_baseline))
        if worth is not None
    ]


def _describe(technique: str, value: str, recipe: str, worth: Worth) -> WorthRow:
    gap = worth.interval
    return WorthRow(technique, value, recipe, gap.mean, gap.low, gap.high, worth.proven, worth.likely)
