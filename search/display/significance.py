"""Sentences about how certain the lead of the best trial is."""

from __future__ import annotations

from analysis.effects.selection import Candidate, Selection, judge_best
from analysis.report.probe import compare_with_probe, describe_probe
from analysis.report.significance import describe_lead
from analysis.report.significance import describe_ties as describe_selection
from search.core.trials import Trials


def describe_ties(trials: Trials) -> list[str]:
    """Say how many completed trials may be the best on these validation images."""
    found = judge(trials)
    if found is None:
        return ["No trial completed, so none can be called the best."] if len(trials) else ["No trial has started yet."]
    return [describe_selection(trials.metric, found)]


def compare_with_baseline(trials: Trials) -> list[str]:
    """Compare the best trial with the best completed baseline, in standard errors of the difference."""
    found = judge(trials)
    if found is None or (found.lead == "baseline" and not _has_rivals(trials)):
        return []
    sentence = describe_lead(trials.metric, found)
    return [sentence] if sentence else []


def describe_frozen(trials: Trials) -> list[str]:
    """Say what classifiers on frozen features reach, and whether the best trial is better."""
    if trials.probe is None:
        return []
    figures, best = trials.probe.figures(), trials.best()
    sentences = [*describe_probe(trials.metric, figures)]
    if best is not None and best.score is not None:
        sentences += compare_with_probe(trials.metric, figures, best.name, best.score)
    return sentences


def judge(trials: Trials) -> Selection | None:
    """Compare the completed trials. Returns None if no trial completed."""
    completed = [
        Candidate(trial.name, trial.score, trial.standard_error, trial.origin == "baseline")
        for trial in trials.ranked()
        if trial.state == "completed" and trial.score is not None
    ]
    return judge_best(completed) if completed else None


def _has_rivals(trials: Trials) -> bool:
    return any(trial.origin != "baseline" and trial.state == "completed" for trial in trials)
