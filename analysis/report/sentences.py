"""Sentences for the report and the terminal: how certain a lead is, and how far a sweep came."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ledger.formatting import format_points, format_score, plural
from training.score_metrics import SOFT

if TYPE_CHECKING:
    from analysis.effects.lead import Lead
    from ledger.tables import Sweep

REACH = 4.5  # standard errors over √trials, about as sweeps on photographs; on digits mostly more (docs/report.md)
NORMAL_90 = 1.645  # half the 90 % interval of a normal value, in standard errors


def describe_lead(metric: str, lead: Lead) -> str:
    """How far the best trial is ahead of the best baseline, and what its recipe scores on new images.

    The terminal and all pages have this one statement.
    """
    if math.isnan(lead.expected):
        return _compare(metric, lead)
    return f"{_compare(metric, lead)} {describe_expected(metric, lead.best, lead.expected, lead.expected_error)}"


def describe_expected(metric: str, what: str, expected: float, error: float) -> str:
    """Which accuracy a model is expected to have on new images, with a 90 % interval."""
    low, high = (format_score(metric, min(max(expected + side * NORMAL_90 * error, 0.0), 1.0)) for side in (-1, 1))
    kind = SOFT.get(metric, metric).removeprefix("val_").replace("_", " ")
    return f"The expected {kind} of {what} on new images is {format_score(metric, expected)} ({low} to {high})."


def _compare(metric: str, lead: Lead) -> str:
    best = lead.best
    if lead.count == 1:
        return f"Only one trial completed, {best}: there is nothing to compare it with."
    if lead.verdict == "alone":
        return f"{best} is the best of {plural(lead.count, 'completed trial')}. No baseline completed, so its gain is unknown."
    if lead.only_baselines:
        return f"Only baselines have completed: the best of them is {best}."
    if lead.verdict == "baseline":
        return f"No recipe beat the baselines: the best trial, {best}, is a baseline."
    scored = f"as scored: {format_points(metric, lead.observed)}"
    if math.isnan(lead.mean):
        return (
            f"It is open whether the best, {best}, is better than the best baseline, {lead.baseline} ({scored}): "
            f"{plural(lead.count, 'trial')} at full length cannot show the noise between trainings."
        )
    low, high = (format_points(metric, end) for end in (lead.low, lead.high))
    span = f"{low.removesuffix(' points')} to {high}"
    if lead.verdict == "clear":
        return (
            f"The best, {best}, is probably {span} better than the best baseline, {lead.baseline}, with new seeds and "
            f"images ({_certainty(lead.probability)} certain that it is better; {scored})."
        )
    return (
        f"It is open whether the best, {best}, is better than the best baseline, {lead.baseline}: {span} are probable with "
        f"new seeds and images ({_certainty(lead.probability)} certain that it is better; {scored})."
    )


def describe_rivals(lead: Lead) -> str | None:
    """How many other trials may be as good as the best; None if none may, or if this is not known."""
    if not lead.rivals:
        return None
    count, others = len(lead.rivals), plural(lead.count - 1, "other completed trial")
    which = f"The {others}" if count == lead.count - 1 else f"{count} of the {others}"
    return f"{which} may be as good as {lead.best}: more images or seeds would show it."


def _certainty(probability: float) -> str:
    return "more than 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


def describe_state(sweep: Sweep) -> str:
    """Say that a sweep is not complete, and what continues or follows it; empty if it is complete."""
    if sweep.state == "running":
        return f"The sweep is running. A page that follows it: sweep report {sweep.called} --follow"
    if sweep.state == "completed":
        return ""
    return f"The sweep is not complete, and no driver runs it. Continue it: sweep resume {sweep.called}"


def expect_reach(images: int, trials: int) -> float:
    """Below which size effects on an accuracy will hardly be seen: an estimate before any trial has run."""
    return REACH * math.sqrt(0.8 * 0.2 / images / trials)  # of an accuracy of 80 %
