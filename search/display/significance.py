"""How far a sweep's scores can be told apart, in sentences."""

from __future__ import annotations

from analysis.effects.selection import luck_of_best
from analysis.report.formatting import format_points
from search.core.trials import Trial, Trials

# Trials are validated on the same images, so their errors mostly rise and fall together: the error of a difference is
# at most that of independent scores, which is all that a ledger can tell. Each recipe was trained once, so a ledger says
# nothing of the noise between seeds: the sentences speak of the validation images alone.


def describe_ties(trials: Trials) -> list[str]:
    """How many completed trials may be the best on these validation images, as it was picked among them."""
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
            f"On these validation images {best.name} is ahead of the rest by more than the luck of the best of "
            f"{len(completed)} explains (95 %). Seeds have noise of their own, which sweep confirm measures."
        ]
    luck = luck_of_best(len(completed)) * max(_error_of_difference(best, trial) for trial in tied[1:])
    return [
        f"{len(tied)} of {len(completed)} completed trials, the best included, cannot be told apart on these validation "
        f"images: by luck the best of {len(completed)} may be up to {format_points(trials.metric, luck)} ahead (95 %). "
        "More images help; sweep confirm adds seeds."
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
        return [f"{start}: no more than the noise of the validation images."]
    count = trials.count()["completed"]
    if difference <= luck_of_best(count) * error:
        return [f"{start}: a hint, no proof, as the best of {count} may be this far ahead by luck."]
    return [f"{start}: on these validation images more than the luck of the best of {count} explains (95 %)."]


def _has_rivals(trials: Trials) -> bool:
    return any(trial.origin != "baseline" and trial.state == "completed" for trial in trials)


def _error_of_difference(one: Trial, other: Trial) -> float:
    return (one.standard_error**2 + other.standard_error**2) ** 0.5
