"""What the dashboard knows of a sweep, folded event by event; each change has a version."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ledger.events import AnyEvent, EpochReported, SweepStarted, TrialEnded, TrialStarted
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.trials import Trial, Trials
from search.core.asha import Asha, make_asha
from search.dashboard.summary import LiveSummary
from search.dashboard.trial_rows import TrialRows


class LiveState:
    """The trials with their rungs, the best of them, and the version at which each changed."""

    def __init__(self, folder: SweepFolder) -> None:
        self.stateer = folder
        self.events: list[AnyEvent] = []
        self.version = 0
        self.rows: TrialRows | None = None  # None until the ledger describes the sweep
        self.trials = Trials("")
        self.asha: Asha | None = None
        self.summary = LiveSummary()
        self.best: Trial | None = None
        self.baseline: Trial | None = None  # that with which recipes are compared
        self.stops: Counter[int] = Counter()  # trials that were stopped, by epoch
        self.changed: dict[int, int] = {}  # version at which a trial changed last
        self.started: dict[int, int] = {}  # version at which it started

    def add(self, events: Sequence[AnyEvent]) -> None:
        """Take in new events, in the order of the ledger."""
        self.version += bool(events)
        for event in events:
            if isinstance(event, SweepStarted):
                self._begin(event)
            self.trials.fold(event)
            self.summary.fold(event)
            if (trial := self.trials.by_number.get(getattr(event, "trial", -1))) is not None:
                self._add_to_trial(event, trial)
        self.events += events

    def touch_running(self) -> None:
        """Give the running trials a new version, because their shown state is another one."""
        self.version += 1
        self.changed |= {trial.number: self.version for trial in self.trials if trial.state == "running"}

    def _begin(self, event: SweepStarted) -> None:
        record = SweepRecord(self.stateer, [event])
        self.trials = Trials(record.space.search.metric)
        self.rows = TrialRows(record.space)
        self.asha = make_asha(record.space)
        self.summary.begin(record)

    def _add_to_trial(self, event: AnyEvent, trial: Trial) -> None:
        self.changed[trial.number] = self.version
        if isinstance(event, TrialStarted):
            self.started[trial.number] = self.version
            if self.asha:
                self.asha.start(trial.number, trial.epochs, original=self.trials.original_of(trial))
        elif isinstance(event, EpochReported) and self.asha:
            self.asha.arrive(trial.number, event.epoch, self.trials.sign * event.score)
        elif isinstance(event, TrialEnded):
            self.stops[trial.epoch] += event.state == "stopped"
            if self.asha:
                self.asha.end(trial.number, event.state)
            if event.state == "completed" and self._is_better(trial, self.best):
                self.best = trial
        if trial.origin == "baseline" and self._is_better(trial, self.baseline):
            self.baseline = trial

    def _is_better(self, trial: Trial, other: Trial | None) -> bool:
        """Return whether a trial comes before another one in `Trials.ranked`; one without a score comes last."""
        return other is None or self._rank(trial) < self._rank(other)

    def _rank(self, trial: Trial) -> tuple[bool, float, int]:
        score = math.inf if trial.score is None else -self.trials.sign * trial.score
        return trial.state != "completed", score, trial.number
