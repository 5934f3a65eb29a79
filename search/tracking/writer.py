"""Copy the ledger to MLflow: one thread of the driver sends the entries that MLflow does not have yet, in batches."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from analysis.reading.store import make_absolute, sqlite_file
from ledger.events import AnyEvent, DrawRefused, RunOpened, SweepStarted, TrialEvent
from ledger.formatting import mask_secrets
from ledger.trials import Trials
from search.tracking.mlflow_store import is_outage, open_store
from search.tracking.sweep_runs import SweepRuns
from training.errors import UserError

FLUSH_SECONDS = 2.0  # each call costs about 10 ms of the driver's CPU, even with few entries
LONGEST_WAIT_SECONDS = 15.0
PUBLISH_SECONDS = 30.0  # between two copies of the ledger; longer if a copy takes long
logger = logging.getLogger("search")


class Tracking:
    """Accepts the ledger's events without blocking or failing; a thread folds and sends them.

    With `nested=False` it logs a single training: trial 0 is the only run, named `sweep`, without a parent. The file
    `ledger` is copied to the sweep's run from time to time, and at the end; `page` while the sweep runs.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        *,
        sweep: str,
        sweep_id: str,
        metric: str,
        nested: bool = True,
        ledger: Path | None = None,
        page: Path | None = None,
    ) -> None:
        self.uri = make_absolute(uri)
        self.experiment = experiment
        self.sweep_id = sweep_id
        self.trials = Trials(metric)
        self._ledger, self._page = ledger, page
        self._next_publication = 0.0
        self._runs = SweepRuns(sweep, sweep_id, nested=nested)
        self._queue: SimpleQueue[list[AnyEvent] | None] = SimpleQueue()
        self._pending: Counter[int] = Counter()  # number of events not delivered yet, by trial
        self._refused = 0
        self._closing: str | None = None
        self._progress = 0.0  # time of the last successful delivery
        self._failures = 0  # consecutive passes without an answer from MLflow
        self._last_time = time.time()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._used = False
        self._closed = False
        self._given_up = False
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    @property
    def run_ids(self) -> dict[int, str]:
        """MLflow run ids by trial number, for the runs that exist now."""
        return self._runs.run_ids

    @property
    def backlog(self) -> int:
        """Number of events that MLflow does not have yet."""
        return sum(list(self._pending.values())) + self._queue.qsize()

    @property
    def refused(self) -> int:
        """Number of entries that MLflow refused because of an error in our code; each is in the log."""
        return self._refused + self._runs.refused

    @property
    def own_run(self) -> RunOpened | None:
        """The sweep's own run; None until it exists."""
        return self._runs.own_run

    def start(self, patient: bool = False) -> None:
        """Open the store in the background, because importing mlflow and creating an SQLite store take seconds; only once.

        With `patient`, a server that does not answer at the start is tried again, as it is later in the sweep.
        """
        self._patient = patient
        if self._thread.ident is None:
            self._thread.start()

    def wait_ready(self) -> None:
        """Wait until runs can be written."""
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def __call__(self, event: AnyEvent) -> None:
        """Accept one event of the ledger. Events must come in the ledger's order."""
        self.replay([event])

    def replay(self, events: Iterable[AnyEvent]) -> None:
        """Send all events of a ledger again; entries that MLflow has already stay unchanged."""
        # As one item, so that the thread sees only the current state of each trial, not earlier ones.
        self._queue.put(list(events))
        self._used = True

    def close(self, state: str, timeout_seconds: float = 60.0, at_most_seconds: float = math.inf) -> int:
        """Send all remaining events, end the sweep's run in `state`, and return how many events did not arrive.

        It waits `timeout_seconds` after each successful delivery, and `at_most_seconds` in total.
        """
        if not self._used:  # the sweep never began, so do not wait for a store that is still being opened
            return 0
        began = time.monotonic()
        self._closing = state
        self._queue.put(None)  # wakes the thread
        while self._thread.is_alive() and time.monotonic() < min(
            max(began, self._progress) + timeout_seconds, began + at_most_seconds
        ):
            self._thread.join(0.05)
        self._given_up = True
        if self._thread.is_alive():
            self._thread.join(1.0)  # a request that is still running must not overlap with those of a resume
        while not self._queue.empty():  # the store never opened
            self._fold(self._queue.get() or [])
        return self.backlog + (not self._closed)

    def _work(self) -> None:
        is_open = self._open()
        self._ready.set()
        while self._error is None and not self._closed and not self._given_up:
            self._receive()
            is_open = is_open or self._open()
            delivered = is_open and self._send()
            if not delivered and self._closing is not None:
                time.sleep(min(FLUSH_SECONDS, 0.5))

    def _open(self) -> bool:
        """Try to open the store. An error that is no outage is kept in `_error`; then do not try again."""
        try:
            self._runs.open(open_store(self.uri, self.experiment))
            return True
        except Exception as error:  # noqa: BLE001 - wait_ready raises it in the driver, or the log has it
            if self._patient and is_outage(error):
                self._note_outage(error)
                return False
            self._error = _as_user_error(error, self.uri)
            if self._ready.is_set():
                logger.error("%s", self._error)
            return False

    def _receive(self) -> None:
        """Collect events for some seconds, so that they are sent together; longer while MLflow does not answer."""
        until = time.monotonic() + min(FLUSH_SECONDS * 2 ** min(self._failures, 8), LONGEST_WAIT_SECONDS)
        while True:
            left = 0 if self._closing is not None else max(0, until - time.monotonic())
            try:
                events = self._queue.get(timeout=left) if left else self._queue.get_nowait()
            except Empty:
                return
            self._fold(events or [])

    def _fold(self, events: list[AnyEvent]) -> None:
        for event in events:
            self.trials.fold(event)
            if isinstance(event, SweepStarted):
                self._runs.describe(event)
            if isinstance(event, DrawRefused) or not isinstance(event, TrialEvent):
                continue
            if event.trial in self.trials.by_number:
                self._pending[event.trial] += 1
                self._last_time = event.time

    def _send(self) -> bool:
        """Send the trials that have new events. Returns False if MLflow did not answer."""
        for number in list(self._pending):
            if self._given_up:
                return False
            if not self._attempt(partial(self._runs.send, self.trials.by_number[number]), f"trial {number:04d}"):
                self._pending[number] = self._pending.pop(number)  # last in the next pass: others may succeed
                return False
            del self._pending[number]
            self._progress = time.monotonic()
        return self._finish()

    def _publish(self) -> None:
        if self._ledger is None or not self._runs.begun:
            return
        began = time.monotonic()
        if began >= self._next_publication:
            self._runs.publish(self.trials, self._ledger, self._last_time)
            if self._page is not None:
                self._runs.attach(self._page)
            took = time.monotonic() - began
            self._next_publication = began + max(PUBLISH_SECONDS, 20 * took)

    def _attempt(self, send: Callable[[], None], what: str) -> bool:
        """Send something. Returns False if MLflow did not answer; what it refuses is logged, and not sent again."""
        try:
            send()
        except Exception as error:
            if is_outage(error):
                self._note_outage(error)
                return False
            self._refused += 1
            logger.exception("MLflow refused what %s logged", what)
        return True

    def _finish(self) -> bool:
        state, own_run, is_sent = self._closing, "the sweep's own run", True
        if state is None:
            is_sent = self._attempt(self._publish, own_run)
        elif self._queue.empty():
            finish = partial(self._runs.finish, state, self.trials, self._last_time, self._ledger)
            is_sent = self._closed = self._attempt(finish, own_run)
        if not is_sent:
            return False
        if self._failures > 1:
            logger.warning("MLflow answers again; all missing entries were sent.")
        self._failures = 0
        return True

    def _note_outage(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 2:  # a single failure may be a connection that the server closed
            file = sqlite_file(self.uri)
            is_gone = file is not None and not file.exists()
            reason = "its file is gone" if is_gone else mask_secrets(str(error).split("\n")[0])[:200]
            logger.warning(
                "MLflow at %s does not answer; the training continues, and the missing entries are sent later. (%s)",
                mask_secrets(self.uri),
                reason,
            )


def _as_user_error(error: Exception, uri: str) -> BaseException:
    if isinstance(error, UserError):
        return error
    logger.debug("opening %s", mask_secrets(uri), exc_info=error)
    reason = mask_secrets(str(error).strip().split("\n")[0].split(". ")[0].rstrip("."))
    return UserError(
        f"--tracking-uri {mask_secrets(uri)}: MLflow cannot open it ({reason}). "
        "Repair it, or name another, such as sqlite:///mlflow.db or http://host:5000."
    )
