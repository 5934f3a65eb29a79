"""Estimate the time that a sweep still needs, from the speed of its epochs so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledger.events import AnyEvent, EpochReported
from ledger.formatting import format_seconds, plural
from ledger.trials import UNFINISHED, Trial


class Pace:
    """Epochs per second since the first trial of this session began."""

    def __init__(self, slots: Callable[[], int], seconds_left: Callable[[], float] | None = None) -> None:
        self.slots = slots
        self.seconds_left = seconds_left
        self.began: float | None = None
        self.epochs = 0

    def add(self, event: AnyEvent) -> None:
        """Count a start, resume or report when it happens."""
        if self.began is None:
            self.began = event.time
        self.epochs += isinstance(event, EpochReported)

    def describe(self, trials: Sequence[Trial], budget: int, now: float) -> tuple[str, str]:
        """Return for example `about 3 min 12 s left`, or the end of the time budget if that is sooner; and its source.

        Without a time budget both are empty until trials have finished.
        """
        left = self.estimate(trials, budget, now)
        basis = f"from {plural(self.epochs, 'epoch')} since the driver started"
        if self.seconds_left is not None and (left is None or self.seconds_left() < left):
            return f"time budget ends in {format_seconds(max(0.0, self.seconds_left()))}", "as asked for at the start"
        return ("", "") if left is None else (f"about {format_seconds(left)} left", basis)

    def estimate(self, trials: Sequence[Trial], budget: int, now: float) -> float | None:
        """Estimate the seconds left. None if no trial has finished yet, in this session or an earlier one."""
        finished = [trial for trial in trials if trial.state in ("completed", "stopped", "diverged")]
        # Baselines are never stopped, so their length does not predict that of other trials.
        finished = [trial for trial in finished if trial.origin != "baseline"] or finished
        if not finished or not self.epochs or self.began is None:
            return None
        lengths = [trial.epoch for trial in finished]
        open_ = [_remaining(trial, lengths) for trial in trials if trial.state in UNFINISHED]
        new = budget - len(trials)
        mean = sum(lengths) / len(lengths)
        slots = max(1, min(self.slots(), len(trials)))
        epochs = max((sum(open_) + new * mean) / slots, *open_, mean if new else 0)
        return epochs * slots * (now - self.began) / self.epochs


def _remaining(trial: Trial, lengths: Sequence[int]) -> float:
    """Estimate the epochs left: the mean over trials that went further, or all of them if none did."""
    beyond = [length - trial.epoch for length in lengths if length > trial.epoch]
    if not beyond or trial.origin == "baseline":
        return trial.epochs - trial.epoch
    return sum(beyond) / len(beyond)
