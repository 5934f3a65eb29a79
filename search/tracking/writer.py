"""MLflow as a projection of the ledger: one thread of the driver sends what MLflow does not have yet, in batches."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from analysis.report.formatting import mask_secrets
from search.core.events import AnyEvent, DrawRefused, TrialEvent
from search.core.trials import Trials
from search.tracking.mlflow_store import is_outage, make_absolute, open_store
from search.tracking.sweep_runs import SweepRuns
from training.errors import UserError

FLUSH_SECONDS = 2.0  # a call costs about 10 ms of the driver's CPU, however little it sends
LONGEST_WAIT_SECONDS = 15.0
logger = logging.getLogger("search")


class Tracking:
    """Takes the ledger's events and never blocks or fails for them; its thread folds and sends them.

    `nested=False` is a single training: trial 0 is the only run, named `sweep`, without a parent.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        *,
        sweep: str,
        sweep_id: str,
        metric: str,
        space: str = "",
        params: dict[str, Any] | None = None,
        dataset: Mapping[str, Any] | None = None,
        nested: bool = True,
    ) -> None:
        self.uri = make_absolute(uri)
        self.experiment = experiment
        self.trials = Trials(metric)
        self._runs = SweepRuns(sweep, sweep_id, space=space, params=params or {}, dataset=dataset, nested=nested)
        self._queue: SimpleQueue[list[AnyEvent] | None] = SimpleQueue()
        self._pending: Counter[int] = Counter()  # events not delivered yet, by trial
        self._refused = 0
        self._closing: str | None = None
        self._progress = 0.0  # when something arrived last
        self._failures = 0  # passes in a row that MLflow did not answer
        self._last_time = time.time()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._used = False
        self._closed = False
        self._given_up = False
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    @property
    def run_ids(self) -> dict[int, str]:
        """Trial number to MLflow run id, of those that exist by now."""
        return self._runs.run_ids

    @property
    def refused(self) -> int:
        """How often MLflow did not take what was sent, for a fault of ours; each is in the log."""
        return self._refused + self._runs.refused

    @property
    def parent_run_id(self) -> str | None:
        return self._runs.parent_run_id

    def start(self, patient: bool = False) -> None:
        """Open the store in the background: importing mlflow and making an SQLite store take seconds.

        With `patient`, a server that does not answer is tried again, as one is that goes away later.
        """
        self._patient = patient
        self._thread.start()

    def wait_ready(self) -> None:
        """Wait until runs can be written.

        Raises:
            UserError: the store cannot be opened, or the server does not answer and was not to be waited for.
        """
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def __call__(self, event: AnyEvent) -> None:
        """Take one event of the ledger, after those before it."""
        self.replay([event])

    def replay(self, events: Iterable[AnyEvent]) -> None:
        """Send all events of a ledger again; what is in MLflow stays as it is."""
        # In one piece, so that the thread sees how each trial stands now and not how it once stood.
        self._queue.put(list(events))
        self._used = True

    def close(self, state: str, timeout_seconds: float = 60.0, at_most_seconds: float = math.inf) -> int:
        """Send what is left, and end the sweep's run in `state`; returns how many events did not arrive.

        A slow server is waited for as long as something arrives in `timeout_seconds`, one that is away only once.
        """
        if not self._used:  # the sweep never began; nobody should wait for a store that is still being opened
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
            self._thread.join(1.0)  # a request on its way must not meet those of a resume
        while not self._queue.empty():  # the store never opened
            self._fold(self._queue.get() or [])
        return sum(list(self._pending.values())) + (not self._closed)

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
        """Open the store; False, and trying again is of no use, where there is an error."""
        try:
            self._runs.open(open_store(self.uri, self.experiment))
            return True
        except Exception as error:  # noqa: BLE001 - told to the driver by wait_ready, or to the log
            if self._patient and is_outage(error):
                self._note_outage(error)
                return False
            self._error = _as_user_error(error, self.uri)
            if self._ready.is_set():
                logger.error("%s", self._error)
            return False

    def _receive(self) -> None:
        """Fold events for a moment, so that they go out together; longer while MLflow does not answer."""
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
            if isinstance(event, DrawRefused) or not isinstance(event, TrialEvent):
                continue
            if event.trial in self.trials.by_number:
                self._pending[event.trial] += 1
                self._last_time = event.time

    def _send(self) -> bool:
        """One pass over the trials with news; False when MLflow did not answer."""
        for number in list(self._pending):
            if self._given_up:
                return False
            try:
                self._runs.send(self.trials.by_number[number])
            except Exception as error:
                if is_outage(error):
                    self._pending[number] = self._pending.pop(number)  # last in the next pass: others may be fine
                    self._note_outage(error)
                    return False
                self._refused += 1
                logger.exception("MLflow refused what trial %04d logged", number)
            del self._pending[number]
            self._progress = time.monotonic()
        return self._finish()

    def _finish(self) -> bool:
        try:
            if self._closing is not None and self._queue.empty():
                self._runs.finish(self._closing, self.trials, self._last_time)
                self._closed = True
        except Exception as error:
            if is_outage(error):
                self._note_outage(error)
                return False
            self._refused += 1
            self._closed = True
            logger.exception("MLflow refused the end of the sweep")
        if self._failures > 1:
            logger.warning("MLflow answers again; everything logged meanwhile was sent.")
        self._failures = 0
        return True

    def _note_outage(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 2:  # a single failure may be a connection that the server closed
            reason = mask_secrets(str(error).split("\n")[0])[:200]
            logger.warning(
                "MLflow at %s does not answer; training goes on, and what is logged is sent later. (%s)",
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
        "Mend it, or name another, as in sqlite:///mlflow.db or http://host:5000."
    )
