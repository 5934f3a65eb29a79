"""A sweep for its dashboard: the ledger is followed, and each caller gets what changed since its last call."""

from __future__ import annotations

import threading
import time
import uuid

from analysis.formatting import label_of
from analysis.report.figures.rungs import choose_rungs
from search.core.record import SweepRecord
from search.core.trials import Trial
from search.dashboard.fold import Fold
from search.dashboard.ledger_tail import LedgerTail
from search.dashboard.trial_rows import Row, TrialRows
from search.storage.events import DriverStarted
from search.storage.folder import SweepFolder
from spaces.load import FORMAT
from training.errors import UserError

LOOK_SECONDS = 0.5  # between two looks at the ledger
LOCK_SECONDS = 2.0  # between two looks at the lock
MOST = 1000  # trials in one answer, or slightly more: a page of a large sweep shows the first ones at once


class LiveSweep:
    """Follows the ledger of a sweep. Its methods may be called by several threads."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self.problem = ""  # the reason why the ledger cannot be read
        self.source_problem = ""  # the reason why the ledger is not the newest, for a copy
        self._tail = LedgerTail(folder.ledger)
        self._mutex = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.session = uuid.uuid4().hex  # a page that has another one begins again
        self.fold = Fold(self.folder)
        self.is_running = False
        self._next_look = self._next_lock_look = 0.0
        self._state_at = (-1, "")  # the version for which the state was found, and the state

    @property
    def record(self) -> SweepRecord:
        """The sweep as commands see it, for requests."""
        return SweepRecord(self.folder, self.fold.events)

    @property
    def is_read(self) -> bool:
        """Whether the ledger was read to its end."""
        return self._tail.share == 1.0

    def refresh(self) -> None:
        """Take in the new events. An unreadable ledger is described in `problem`."""
        with self._mutex:
            if time.monotonic() < self._next_look:
                return
            try:
                self._read()
                self.problem = ""
            except UserError as error:
                self.problem = str(error)
            if self.fold.rows is not None and time.monotonic() >= self._next_lock_look:
                self._look_at_lock()
            self._next_look = time.monotonic() + (LOOK_SECONDS if self.is_read else 0.0)

    def _read(self) -> None:
        events = self._tail.read()
        if events is None:  # the ledger is another one now
            self._begin()
            events = self._tail.read() or []
        self.fold.add(events)
        if any(isinstance(event, DriverStarted) for event in events):
            self._next_lock_look = 0.0

    def _look_at_lock(self) -> None:
        was, self.is_running = self.is_running, self.folder.is_running()
        if was != self.is_running:
            self.fold.touch_running()
        self._next_lock_look = time.monotonic() + LOCK_SECONDS

    def count_completed(self) -> int:
        """Return the number of trials that ran to full length, which the findings are about."""
        return sum(trial.state == "completed" for trial in list(self.fold.trials))

    def describe(self, since: int, session: str, is_filling: bool = False) -> Row:
        """Return the sweep as plain values, with the rows that changed after the version `since` of that session.

        Args:
            since: The version of the caller's last answer; 0 for the first.
            session: The session of that answer.
            is_filling: Whether the caller lacks rows, because its last answer had a `share` below 1.
        """
        self.refresh()
        with self._mutex:
            fold, first = self.fold, since if session == self.session else 0
            if fold.rows is None:
                return {"session": self.session, "version": 0, "problem": self.problem, "name": self.folder.name}
            version, changed = self._choose_changed(first)
            sent = sum(one <= version for one in fold.changed.values())
            found: Row = {
                "session": self.session,
                "version": version,
                "problem": self.problem or self.source_problem,
                "share": self._tail.share * (sent / len(fold.changed) if fold.changed else 1.0),
                "head": fold.summary.describe(fold.trials, fold.best, fold.asha, self._find_state()),
            }
            if not first:
                found["sweep"] = self._describe_sweep(fold.rows)
            if first < version:
                is_new = {trial.number for trial in changed if is_filling or fold.started[trial.number] > first}
                found |= self._describe_changes(fold.rows, changed, is_new)
            return found

    def _choose_changed(self, since: int) -> tuple[int, list[Trial]]:
        """Return the version up to which an answer goes, and the trials that changed after `since` until then."""
        fold = self.fold
        found = sorted((version, number) for number, version in fold.changed.items() if version > since)
        until = fold.version if len(found) <= MOST else found[MOST - 1][0]
        return until, [fold.trials.by_number[number] for version, number in found if version <= until]

    def _find_state(self) -> str:
        if self.is_running:
            return "running"
        if self._state_at[0] != self.fold.version:
            record = self.record
            record.trials = self.fold.trials
            self._state_at = self.fold.version, record.state
        return self._state_at[1]

    def _describe_sweep(self, rows: TrialRows) -> Row:
        trials = self.fold.trials
        return {
            "name": self.folder.name,
            "format": FORMAT,
            "label": label_of(trials.metric),
            "maximise": trials.sign > 0,
            "percent": rows.unit != 1,
            "base": rows.base,
            "axes": rows.list_axes(),
        }

    def _describe_changes(self, rows: TrialRows, changed: list[Trial], is_new: set[int]) -> Row:
        fold = self.fold
        return {
            "rows": [self._describe_row(rows, trial, trial.number in is_new) for trial in changed],
            "best": fold.best.number if fold.best else None,
            "baseline": fold.baseline.number if fold.baseline else None,
            "rungs": choose_rungs(+fold.stops, len(fold.trials)),
        }

    def _describe_row(self, rows: TrialRows, trial: Trial, is_new: bool) -> Row:
        # Without a driver, no trial is running.
        is_left = trial.state == "running" and not self.is_running
        row = rows.describe_progress(trial, "interrupted" if is_left else trial.state)
        return row | rows.describe_start(trial) if is_new else row
