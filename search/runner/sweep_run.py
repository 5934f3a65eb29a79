"""The run of a prepared sweep: train until it ends, then close the ledger, the MLflow runs and the copy."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from ledger.events import DriverStarted, RunsRecorded, SweepClosed, SweepState
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.copies.ledger_copy import LedgerCopy
from search.copies.place import CopyPlace, check_place, describe_store_error
from search.core.controller import Controller
from search.core.pace import GRACE, keep_for_end
from search.runner.checkpoints import Checkpoints
from search.runner.display import Display
from search.runner.executor import RayLost, run_on_ray
from search.runner.inbox import Inbox
from search.runner.interrupt import URGENT_CLOSE_SECONDS, Interrupted, StopRequest, hint_resume, interruptible
from search.runner.machines.capacity import Capacity
from search.runner.start.prepare import PreparedSweep
from search.tracking.writer import Tracking
from training.contract.own_parts import list_codes
from training.errors import LostResults, UserError
from training.process.resources import split_cpus


@dataclass(frozen=True)
class SweepEnd:
    """How the run of a sweep ended."""

    record: SweepRecord
    state: SweepState
    undelivered: int  # events that did not reach MLflow
    is_ray_lost: bool = False  # whether it ended because Ray's servers on this machine did
    seconds_left: float | None = None  # of the time budget, if any
    capacity: Capacity | None = None  # for the last trainings, if any follow; they leave the cluster to other sweeps
    had_ended: bool = False  # whether nothing was left to train


class SweepRun:
    """Runs trials until none is left, the time is over or a signal comes; `run` has its steps in their order."""

    def __init__(
        self,
        folder: SweepFolder,
        controller: Controller,
        settings: Settings,
        prepared: PreparedSweep,
        tracking: Tracking,
        display: Display,
        began: float,
    ) -> None:
        """`began` is when the time budget began, by the monotonic clock, whatever happens to that of the machine."""
        self.folder, self.controller, self.settings = folder, controller, settings
        self.prepared, self.tracking, self.display = prepared, tracking, display
        self.capacity = prepared.capacity
        self.budget, self.began = settings.time_budget_seconds, began
        self.request = StopRequest()
        self.inbox = Inbox(folder, controller, lambda: tracking.own_run)
        self.copy: LedgerCopy | None = None
        self.is_spent = False  # the time for trials; it stays so, even if less is kept for the end later
        self.is_waiting = False  # for the workers, after Ctrl-C
        self.undelivered = 0
        self.shown = ExitStack()  # what shows the trials
        self._hint = hint_resume(folder.called, self.budget)

    def run(self) -> SweepEnd:
        """Run the sweep to its end.

        Raises:
            Interrupted: the process must end at once.
            Exception: an error of the program.
        """
        self._open()
        with interruptible() as self.request:
            crash = self._train()
            state = self._close()
        seconds, is_on_ray = self._seconds_for_last(), self.prepared.execute is run_on_ray
        has_last = is_on_ray and seconds and state != "interrupted" and self.controller.trials.best()
        if not has_last and not isinstance(crash, RayLost):
            self.capacity.close()  # else the last trainings do
        self._refuse_failure(crash)
        if self.request.is_hurried and state != "completed":
            raise Interrupted(self.request.number or signal.SIGTERM, self._hint)
        is_lost = isinstance(crash, RayLost) and state == "interrupted" and not self.request()
        record = SweepRecord(self.folder, self.controller.ledger.events)
        return SweepEnd(record, state, self.undelivered, is_lost, seconds, self.capacity if has_last else None)

    def _open(self) -> None:
        """Write into the ledger who trains, and subscribe what follows its events."""
        self.controller.seconds_left = self.seconds_left
        self.controller.record(self._describe())
        if self.settings.copy_to:
            check_place(self.settings.copy_to)
            self.copy = LedgerCopy(self.folder, CopyPlace(self.settings.copy_to).child(self.folder.name))
        self.checkpoints = Checkpoints(self.folder, self.controller.trials, self.settings.keep_best, self.copy)
        self.controller.subscribe(self.checkpoints)
        if self.copy is not None:
            self.controller.subscribe(self.copy)

    def _describe(self) -> DriverStarted:
        demand = self.capacity.demand
        threads, _ = split_cpus(demand.cpus, in_memory=True)
        return DriverStarted(
            pid=os.getpid(),
            host=socket.gethostname(),
            threads=threads,
            slots=self.capacity.slots,
            gpus=demand.gpus,
            seconds=self.prepared.seconds,
            plugins=tuple(dict.fromkeys(list_codes().values())),
        )

    def _train(self) -> Exception | RayLost | None:
        """Run the trials. Returns what ended them before their time, unless `fatal` has the reason."""
        left = self.seconds_left if self.budget else None
        crash: Exception | RayLost | None = None
        with self.shown as shown:
            shown.enter_context(self.display.training(self.controller, lambda: self.capacity.slots, left, self.began))
            try:
                self.prepared.execute(self)
            except Interrupted:  # the request has recorded the signal
                pass
            except RayLost as lost:
                crash = lost
            except Exception as error:  # noqa: BLE001 - raised again when the ledger and MLflow are closed
                crash = None if self.controller.fatal else error
            self._interrupt_trials()
        return crash

    def seconds_left(self) -> float:
        """Return the time for trials; that of the last trainings, on all images, is kept."""
        if not self.budget:
            return math.inf
        left, capacity = self.began + self.budget - time.monotonic(), self.capacity
        return left - keep_for_end(self.controller.trials, self.budget, left, capacity.slots, capacity.shares_cpus)

    def is_over(self) -> bool:
        """Return whether the time is or was spent. A linear probe, the quickest model, may end if there is no other yet."""
        waits = self.controller.trials.best() is None and any(
            trial.origin == "probe" and trial.state == "running" for trial in self.controller.trials
        )
        self.is_spent = self.is_spent or self.seconds_left() < (-(self.budget or 0.0) if waits else 0.0)
        return self.is_spent

    def should_stop(self) -> bool:
        """Take in the requests of users, and return whether the sweep should stop; called at least once a second."""
        controller, problem = self.controller, self.capacity.problem
        with suppress(OSError):  # `fatal` has the reason
            self.inbox.collect()
        if problem:
            controller.fatal = problem
        if controller.ledger.was_removed and not controller.fatal:
            controller.fatal = f"{self.folder.ledger} was removed while the sweep ran, and has been written again"
        return self.is_over() or self.request() or self.folder.stop_request.is_file() or bool(controller.fatal)

    def leave(self) -> None:
        """End the trials in the ledger, before the wait for their workers.

        Raises:
            Interrupted: there is no time to wait.
        """
        self._interrupt_trials()
        if self.request.is_hurried:
            raise Interrupted(self.request.number or signal.SIGTERM)
        if self.request() and not self.is_waiting:
            self.is_waiting = True
            self.display.line("Ctrl-C: waiting for the workers to end. Press it again to end them at once.")

    def abandon(self) -> None:
        """End this process from another thread: the main one waits for a lost head node, until Ray ends it without a word."""
        try:
            self._interrupt_trials()
            self.shown.close()
            self.display.line(
                f"--address={self.settings.address}: the head node of the cluster no longer answers. All earlier results "
                f"are kept. When it is back: sweep resume {self.folder.called}"
            )
            self._close()
        finally:
            os._exit(2)

    def _interrupt_trials(self) -> None:
        is_spent = self.is_over() and not self.request()
        with self.request.held():
            self.controller.interrupt("the time budget was spent" if is_spent else "the sweep was stopped")

    def _close(self) -> SweepState:
        controller, request = self.controller, self.request
        with suppress(OSError), request.held():
            self.inbox.collect(at_once=True)  # what came late is trained after a resume
        state: SweepState = "interrupted"
        if controller.is_done:
            state = "completed"
        elif (self.is_over() or controller.is_out_of_time) and not request():
            state = "time_budget"
        with suppress(OSError), request.held():  # after a full disk, `fatal` has the reason
            controller.record(SweepClosed(state=state))
        with suppress(Interrupted, OSError):
            most = URGENT_CLOSE_SECONDS if request.is_hurried else math.inf
            self.undelivered = self.tracking.close(state, at_most_seconds=most)
            record_runs(controller, self.tracking, self.undelivered)
        if self.copy is not None:
            self._close_copy(self.copy)
        return state

    def _close_copy(self, copy: LedgerCopy) -> None:
        problem = copy.close()
        try:
            self.checkpoints.fetch(copy.place)
        except OSError as error:
            problem = problem or describe_store_error(error)
        if problem:
            self.display.line(
                f"! The copy at {copy.place.uri} is not complete ({problem}). The folder {copy.folder.path} has all events."
            )

    def _refuse_failure(self, crash: Exception | RayLost | None) -> None:
        """Raise what ended the sweep before its time, with the command that continues it."""
        fatal, ledger = self.controller.fatal, self.folder.ledger
        if not ledger.exists():
            raise LostResults(
                f"{ledger} was removed while the sweep ran, and cannot be written again ({fatal}). Its results are lost, "
                "except for its runs in MLflow."
            )
        if fatal:
            raise UserError(f"{fatal}. The sweep ended; all results are kept. Solve this problem first. {self._hint}")
        if isinstance(crash, Exception):
            crash.add_note(f"This is an error in the program. All earlier results are kept. {self._hint}")
            raise crash

    def _seconds_for_last(self) -> float | None:
        """Return what is left of the time budget; None without one, and far beyond it: a last training makes it no better."""
        if not self.budget:
            return None
        left = self.began + self.budget - time.monotonic()
        return None if left < -GRACE * self.budget else max(1.0, left)


def record_runs(controller: Controller, tracking: Tracking, undelivered: int) -> None:
    """Record the MLflow run ids in the ledger, and how many events did not arrive."""
    ids = {str(number): run for number, run in tracking.run_ids.items()}
    controller.record(RunsRecorded(ids=ids, undelivered=undelivered))
