"""How clearly the best trial of a sweep is the best, in sentences."""

from __future__ import annotations

from analysis.effects.selection import Candidate, Selection, judge_best
from analysis.report.significance import describe_lead
from analysis.report.significance import describe_ties as describe_selection
from search.core.trials import Trials


def describe_ties(trials: Trials) -> list[str]:
    """How many completed trials may be the best on these validation images, as it was picked among them."""
    found = judge(trials)
    if found is None:
        return ["No trial completed, so none can be called the best."] if len(trials) else ["No trial has started yet."]
    return [describe_selection(trials.metric, found)]


def compare_with_baseline(trials: Trials) -> list[str]:
    """How far the best is from the best completed baseline, in standard errors of the difference."""
    found = judge(trials)
    if found is None or (found.lead == "baseline" and not _has_rivals(trials)):
        return []
    sentence = describe_lead(trials.metric, found)
    return [sentence] if sentence else []


def judge(trials: Trials) -> Selection | None:
    """The verdict on the completed trials; None if there is none."""
    completed = [
        Candidate(trial.name, trial.score, trial.standard_error, trial.origin == "baseline")
        for trial in trials.ranked()
        if trial.state == "completed" and trial.score is not None
    ]
    return judge_best(completed) if completed else None


def _has_rivals(trials: Trials) -> bool:
    return any(trial.origin != "baseline" and trial.state == "completed" for trial in trials)
