"""Sentences for the report and the terminal about how certain the lead of the best trial is.

Each recipe was trained once, so these sentences do not cover the noise between seeds: they are about the validation
images only.
"""

from __future__ import annotations

from analysis.effects.selection import Selection
from analysis.formatting import format_points


def describe_ties(metric: str, found: Selection) -> str:
    """How many completed trials can be the best on these validation images."""
    best = found.best.name
    if found.count == 1:
        return "Only one trial completed: there is nothing to compare it with."
    if found.best.standard_error == 0:
        perfect = sum(trial.standard_error == 0 for trial in found.tied) - 1
        others = f", nor did {perfect} more" if perfect else ""
        return f"The best, {best}, made no mistake in validation{others}: only more images can show how good it is."
    if len(found.tied) == 1:
        return (
            f"On these validation images {best} is ahead of the rest by more than luck can explain for the best of "
            f"{found.count} (95 %). There is also noise between seeds, which sweep confirm measures."
        )
    return (
        f"{len(found.tied)} of {found.count} completed trials, the best included, cannot be distinguished on these "
        f"validation images: by luck the best of {found.count} may be up to {format_points(metric, found.luck)} ahead "
        "(95 %). More images help; sweep confirm adds seeds."
    )


def describe_lead(metric: str, found: Selection) -> str | None:
    """How far the best trial is ahead of the best completed baseline; None if no baseline completed."""
    best = found.best.name
    if found.baseline is None:
        return None
    if found.lead == "baseline":
        return f"No recipe beat the baseline: the best trial, {best}, is one."
    gap = format_points(metric, found.gap, found.error)
    start = f"The best, {best}, is better than the best baseline, {found.baseline.name}, by {gap}"
    if found.lead == "noise":
        return f"{start}: no more than the noise of the validation images."
    if found.lead == "luck":
        return f"{start}: this is not proven, because the best of {found.count} may be this far ahead by luck."
    return f"{start}: on these validation images more than luck can explain for the best of {found.count} (95 %)."
