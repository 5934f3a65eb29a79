"""A sweep for its dashboard: the ledger is followed, and each caller gets what changed since its last call.

The ledger of a sweep on another machine is fetched again and again from the MLflow store that both reach.
"""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.reading.remote import fetch_ledger
from analysis.report.sweep_data import choose_rungs
from ledger.columns import describe_pages
from ledger.events import DriverStarted
from ledger.file import LedgerTail
from ledger.folder import SweepFolder
from ledger.formatting import label_of
from ledger.record import SweepRecord
from ledger.stand_ins import describe_missing
from ledger.trials import Trial
from search.dashboard.findings import LiveFindings
from search.dashboard.live_state import LiveState
from search.dashboard.trial_rows import Row, TrialRows
from spaces.load import FORMAT
from training.errors import UserError

LOOK_SECONDS = 0.5  # between two looks at the ledger
LOCK_SECONDS = 2.0  # between two looks at the lock
FETCH_SECONDS = 10.0  # between two looks at a store; the driver copies its ledger there about twice a minute
MOST = 1000  # trials in one answer, or slightly more: a page of a large sweep shows the first ones at once


class LiveSweep:
    """Follows the ledger of a sweep, which may not have begun yet. Its methods may be called by several threads."""

    def __init__(self, folder: SweepFolder, files: Sequence[str] = (), uri: str | None = None) -> None:
        """Follow a folder; `files` have own techniques. If it is a copy, `uri` is the MLflow store that it comes from."""
        self.folder, self.files, self.uri = folder, files, uri
        self.problem = ""  # the reason why the ledger cannot be read
        self.source_problem = ""  # the reason why the ledger is not the newest, for a copy
        self.findings = LiveFindings(folder, self.count_completed, files)
        self._tail = LedgerTail(folder)
        self._mutex = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.session = uuid.uuid4().hex  # a page that has another one begins again
        self.state = LiveState(self.folder)
        self.is_running = False
        self._next_look = self._next_lock_look = 0.0
        self._state_at = (-1, "")  # the version for which the state was found, and the state

    @property
    def record(self) -> SweepRecord:
        """The sweep as commands see it, as far as it was read."""
        return SweepRecord(self.folder, self.state.events)

    def read_whole(self) -> SweepRecord:
        """Return the sweep as commands see it, with all events of its ledger until now, or until a damaged line."""
        self.refresh()
        while self._tail.share < 1.0 and not self.problem:
            self.refresh()
        return self.record

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
            if self.state.rows is not None and time.monotonic() >= self._next_lock_look:
                self._look_at_lock()
            self._next_look = time.monotonic() + (LOOK_SECONDS if self._tail.share == 1.0 else 0.0)

    def _read(self) -> None:
        events = self._tail.read()
        if events is None:  # the ledger is another one now
            self._begin()
            events = self._tail.read() or []
        self.state.add(events)
        if any(isinstance(event, DriverStarted) for event in events):
            self._next_lock_look = 0.0

    def _look_at_lock(self) -> None:
        was, self.is_running = self.is_running, self.folder.is_running()
        if was != self.is_running:
            self.state.touch_running()
        self._next_lock_look = time.monotonic() + LOCK_SECONDS

    def count_completed(self) -> int:
        """Return the number of trials that ran to full length, which the findings are about."""
        return sum(trial.state == "completed" for trial in list(self.state.trials))

    def describe(self, since: int, session: str, is_filling: bool = False) -> Row:
        """Return the sweep as plain values, with the rows that changed after the caller's last answer.

        `since` and `session` are the version, 0 for none, and the session of that answer. A caller `is_filling` if it lacks
        rows, because that answer had a `share` below 1.
        """
        self.refresh()
        with self._mutex:
            state, first = self.state, since if session == self.session else 0
            if state.rows is None:
                return {"session": self.session, "version": 0, "problem": self.problem, "name": self.folder.name}
            version, changed = self._choose_changed(first)
            sent = sum(changed_at <= version for changed_at in state.changed.values())
            answer: Row = {
                "session": self.session,
                "version": version,
                "problem": self.problem or self.source_problem or describe_missing(self._tail.missing),
                "share": self._tail.share * (sent / len(state.changed) if state.changed else 1.0),
                "head": state.summary.describe(state.trials, state.best, state.asha, self._find_state()),
            }
            answer["is_over"] = self.findings.are_complete and answer["share"] == 1.0 and not self.is_running
            if not first:
                answer["sweep"] = self._describe_sweep(state.rows)
            if first < version:
                is_new = {trial.number for trial in changed if is_filling or state.started[trial.number] > first}
                answer |= self._describe_changes(state.rows, changed, is_new)
            return answer

    def _choose_changed(self, since: int) -> tuple[int, list[Trial]]:
        """Return the version up to which an answer goes, and the trials that changed after `since` until then."""
        state = self.state
        changes = sorted((version, number) for number, version in state.changed.items() if version > since)
        until = state.version if len(changes) <= MOST else changes[MOST - 1][0]
        return until, [state.trials.by_number[number] for version, number in changes if version <= until]

    def _find_state(self) -> str:
        if self.is_running:
            return "running"
        if self._state_at[0] != self.state.version:
            record = self.record
            record.trials = self.state.trials
            self._state_at = self.state.version, record.state
        return self._state_at[1]

    def _describe_sweep(self, rows: TrialRows) -> Row:
        trials = self.state.trials
        return {
            "name": self.folder.name,
            "format": FORMAT,
            "label": label_of(trials.metric),
            "maximise": trials.sign > 0,
            "percent": rows.unit != 1,
            "columns": describe_pages(),
            "base": rows.base,
            "axes": rows.list_axes(),
        }

    def _describe_changes(self, rows: TrialRows, changed: list[Trial], is_new: set[int]) -> Row:
        state = self.state
        return {
            "rows": [self._describe_row(rows, trial, trial.number in is_new) for trial in changed],
            "best": state.best.number if state.best else None,
            "baseline": state.baseline.number if state.baseline else None,
            "rungs": choose_rungs(+state.stops, len(state.trials)),
        }

    def _describe_row(self, rows: TrialRows, trial: Trial, is_new: bool) -> Row:
        # Without a driver, no trial is running.
        is_left = trial.state == "running" and not self.is_running
        row = rows.describe_progress(trial, "interrupted" if is_left else trial.state)
        return row | rows.describe_start(trial) if is_new else row


def follow_store(uri: str, name: str, files: Sequence[str] = ()) -> LiveSweep:
    """Fetch the ledger of a sweep, and go on fetching it in a thread; `files` have own techniques."""
    folder = SweepFolder(Path(tempfile.mkdtemp(prefix="sweep-dashboard-")) / name, known_running=False)
    folder.path.mkdir()
    live = LiveSweep(folder, files, uri)
    fetch(live)
    threading.Thread(target=_go_on, args=(live,), daemon=True).start()
    return live


def fetch(live: LiveSweep) -> None:
    """Append what is new in the store to the copy of the ledger."""
    assert live.uri is not None
    with tempfile.TemporaryDirectory() as place:
        copy = fetch_ledger(live.uri, live.folder.name, Path(place))
        new, ledger = copy.ledger.read_bytes(), live.folder.ledger
        old = ledger.read_bytes() if ledger.exists() else b""
    if new.startswith(old):
        with ledger.open("ab") as file:
            file.write(new[len(old) :])
    else:  # another sweep has this name now
        ledger.unlink()
        ledger.write_bytes(new)
    live.folder = replace(live.folder, known_running=copy.known_running)


def _go_on(live: LiveSweep) -> None:
    wait = threading.Event().wait
    while not wait(FETCH_SECONDS):
        try:
            fetch(live)
            live.source_problem = ""
        except UserError as error:
            live.source_problem = str(error)
