"""Estimate the time that a sweep still needs, from what its trials took so far."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ledger.formatting import format_seconds
from ledger.trials import UNFINISHED, Trial


def describe_left(trials: Sequence[Trial], budget: int, slots: int, seconds_left: float | None, now: float) -> str:
    """Return for example `about 3 min 12 s left`, or the end of the time budget, in `seconds_left`, if that is sooner.

    Without a time budget it is empty until trials have ended.
    """
    left = estimate_left(trials, budget, slots, now)
    if seconds_left is not None and (left is None or seconds_left < left):
        return f"time budget ends in {format_seconds(max(0.0, seconds_left))}"
    return "" if left is None else f"about {format_seconds(left)} left"


def estimate_left(trials: Sequence[Trial], budget: int, slots: int, now: float) -> float | None:
    """Estimate the seconds left. None if no trial has ended yet, in this session or an earlier one."""
    ended = [trial for trial in trials if trial.state in ("completed", "stopped", "diverged")]
    # Baselines are never stopped, so their length does not predict that of other trials.
    ended = [trial for trial in ended if trial.origin != "baseline"] or ended
    if not ended:
        return None
    lengths = [_spent(trial, now) for trial in ended]
    open_ = [_remaining(trial, lengths, now) for trial in trials if trial.state in UNFINISHED]
    new, mean = budget - len(trials), fmean(lengths)
    return max((sum(open_) + new * mean) / max(1, min(slots, len(trials))), *open_, mean if new else 0.0)


def _spent(trial: Trial, now: float) -> float:
    """Return the seconds of a trial so far; without its start, if it was interrupted."""
    is_whole = not trial.resumes and trial.state != "interrupted"
    return (trial.ended or now) - trial.started if is_whole else trial.seconds or 0.0


def _remaining(trial: Trial, lengths: Sequence[float], now: float) -> float:
    """Estimate the seconds left: the mean over trials that took longer, or all of its epochs if none did."""
    spent = _spent(trial, now)
    beyond = [length - spent for length in lengths if length > spent]
    if beyond and trial.origin != "baseline":
        return fmean(beyond)
    return spent * (trial.epochs / trial.epoch - 1) if trial.epoch else fmean(lengths)
