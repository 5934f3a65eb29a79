"""How far a sweep's scores can be told apart, in sentences."""

from __future__ import annotations

from analysis.wording import format_points
from search.trials import Trial, Trials

# Trials are validated on the same images, so their errors mostly rise and fall together: the error of a difference is
# at most that of independent scores, which is all that a ledger can tell.


def describe_ties(trials: Trials) -> list[str]:
    """How many completed trials tie with the best within the standard error of the difference."""
    completed = [trial for trial in trials if trial.state == "completed" and trial.score is not None]
    if not completed:
        return ["No trial completed, so none can be called the best."] if len(trials) else ["No trial has started yet."]
    if len(completed) == 1:
        return ["Only one trial completed: there is nothing to compare it with."]
    tied = trials.tied_with_best()
    best = tied[0]
    if best.standard_error == 0:
        perfect = sum(trial.standard_error == 0 for trial in tied) - 1
        others = f", nor did {perfect} more" if perfect else ""
        return [
            f"The best, {best.name}, made no mistake in validation{others}: only more images can say how good it is."
        ]
    if len(tied) == 1:
        return [
            f"The best of {len(completed)} completed trials, {best.name}, is ahead of the rest by more than the noise."
        ]
    error = max(_error_of_difference(best, trial) for trial in tied[1:])
    return [
        f"{len(tied)} of {len(completed)} completed trials, the best included, tie within the noise "
        f"(± {format_points(trials.metric, error)} at most): more images or seeds are needed to tell them apart."
    ]


def compare_with_baseline(trials: Trials) -> list[str]:
    """How far the best is from the best completed baseline, in standard errors of the difference."""
    best = trials.best()
    baselines = [t for t in trials.ranked() if t.origin == "baseline" and t.state == "completed"]
    if best is None or not baselines:
        return []
    base = baselines[0]
    if best is base:
        return [f"No recipe beat the baseline: the best trial, {best.name}, is one."] if _has_rivals(trials) else []
    assert best.score is not None
    assert base.score is not None
    difference, error = abs(best.score - base.score), _error_of_difference(best, base)
    gap = format_points(trials.metric, difference, error)
    start = f"The best, {best.name}, is better than the best baseline, {base.name}, by {gap}"
    if difference <= error:
        return [f"{start}: no more than the noise."]
    if difference <= 2 * error:
        return [f"{start}: more than one standard error, less than two; a hint, no proof."]
    return [f"{start}: more than two standard errors, though the best of many is always a little lucky."]


def _has_rivals(trials: Trials) -> bool:
    return any(trial.origin != "baseline" and trial.state == "completed" for trial in trials)


def _error_of_difference(one: Trial, other: Trial) -> float:
    return (one.standard_error**2 + other.standard_error**2) ** 0.5
