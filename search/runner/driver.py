"""Run trials until none is left, then close the ledger and the MLflow runs and end all processes."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.events import DriverStarted, RunsRecorded, SweepClosed, SweepState
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.copies.ledger_copy import LedgerCopy
from search.copies.place import CopyPlace, check_place, describe_store_error
from search.core.controller import Controller
from search.core.pace import GRACE, keep_for_end
from search.display.progress import Progress
from search.runner.checkpoints import Checkpoints
from search.runner.executor import RayLost, Work
from search.runner.inbox import Inbox
from search.runner.interrupt import URGENT_CLOSE_SECONDS, Interrupted, StopRequest, interruptible
from search.runner.start.prepare import PreparedSweep
from search.tracking.writer import Tracking
from training.errors import LostResults, UserError
from training.process.resources import split_cpus
from training.recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class SweepEnd:
    """The result of a driver."""

    record: SweepRecord
    state: SweepState
    undelivered: int  # events that did not reach MLflow
    is_ray_lost: bool = False  # whether it ended because Ray's servers on this machine did
    seconds_left: float | None = None  # of the time budget, if any


def drive(
    folder: SweepFolder,
    controller: Controller,
    settings: Settings,
    plan: PreparedSweep,
    tracking: Tracking,
    console: Console,
) -> SweepEnd:
    """Run trials until none is left, the time is over or a signal comes; then close the ledger and the MLflow runs.

    Raises:
        Interrupted: the process must end at once.
    """
    budget = settings.time_budget_seconds
    began = plan.began  # of the monotonic clock, whatever happens to that of the machine

    def seconds_left() -> float:
        """Return the time for trials; that of the last trainings, on all images, is kept."""
        if not budget:
            return math.inf
        return began + budget - time.monotonic() - keep_for_end(controller.trials.best(), budget, plan.capacity.slots)

    def is_over() -> bool:
        """Return whether the time is spent. A linear probe, the quickest model, may end if there is no other yet."""
        waits = controller.trials.best() is None and any(
            trial.origin == "probe" and trial.state == "running" for trial in controller.trials
        )
        return seconds_left() < (-(budget or 0.0) if waits else 0.0)

    controller.seconds_left = seconds_left
    controller.record(_describe_driver(plan))
    progress = Progress(
        controller,
        console=console,
        slots=lambda: plan.capacity.slots,
        seconds_left=seconds_left if budget else None,
        seconds_before=time.monotonic() - plan.began,
    )
    copy = _start_copy(folder, settings.copy_to)
    checkpoints = Checkpoints(folder, controller.trials, settings.keep_best, copy)
    controller.subscribe(checkpoints)
    controller.subscribe(progress)
    if copy is not None:
        controller.subscribe(copy)
    inbox = Inbox(folder, controller, lambda: tracking.own_run)

    with interruptible() as request:

        def should_stop() -> bool:
            with suppress(OSError):  # `fatal` has the reason
                inbox.collect()
            if plan.capacity.problem:
                controller.abort(plan.capacity.problem)
            if controller.ledger.was_removed and not controller.fatal:
                controller.abort(f"{folder.ledger} was removed while the sweep ran, and has been written again")
            is_asked = folder.stop_request.is_file()
            return is_over() or request() or is_asked or bool(controller.fatal)

        def stop_trials() -> None:
            is_spent = is_over() and not request()
            with request.held():
                controller.interrupt("the time budget was spent" if is_spent else "the sweep was stopped")

        def leave() -> None:
            stop_trials()
            if request.is_hurried:
                raise Interrupted(request.number or signal.SIGTERM)
            if request():
                progress.say_once("Ctrl-C: waiting for the workers to end. Press it again to end them at once.")

        with progress:
            crash = _execute(plan, Work(folder, controller, plan.capacity, settings, should_stop, leave, progress.say))
            stop_trials()
        with suppress(OSError), request.held():
            inbox.collect(at_once=True)  # what came late is trained after a resume
        state: SweepState = "interrupted"
        if controller.is_done:
            state = "completed"
        elif (seconds_left() < 0 or controller.is_out_of_time) and not request():
            state = "time_budget"
        undelivered = _close(controller, tracking, state, request)
        if copy is not None:
            _close_copy(copy, checkpoints, console)
    _refuse_failure(folder, controller, crash)
    if request.is_hurried and state != "completed":
        raise Interrupted(request.number or signal.SIGTERM, _way_on(folder))
    is_lost = isinstance(crash, RayLost) and state == "interrupted" and not request()
    left = began + budget - time.monotonic() if budget else None
    if left is not None:  # far beyond the time, a last training makes it no better
        left = None if left < -GRACE * (budget or 0.0) else max(1.0, left)
    return SweepEnd(SweepRecord(folder, controller.ledger.events), state, undelivered, is_lost, left)


def _describe_driver(plan: PreparedSweep) -> DriverStarted:
    demand = plan.capacity.demand
    threads, _ = split_cpus(demand.cpus, in_memory=True)
    return DriverStarted(
        pid=os.getpid(),
        host=socket.gethostname(),
        threads=threads,
        slots=plan.capacity.slots,
        gpus=demand.gpus,
        seconds=plan.seconds,
        plugins=tuple(dict.fromkeys(Recipe.plugins().values())),
    )


def _execute(plan: PreparedSweep, work: Work) -> Exception | RayLost | None:
    """Run the trials until the sweep should stop. Returns what ended them earlier, unless `fatal` has the reason."""
    try:
        plan.execute(work)
    except Interrupted:  # the request has recorded the signal
        return None
    except RayLost as lost:
        return lost
    except Exception as error:  # noqa: BLE001 - raised again when the ledger and MLflow are closed
        return None if work.controller.fatal else error
    return None


def _refuse_failure(folder: SweepFolder, controller: Controller, crash: Exception | RayLost | None) -> None:
    """Raise what ended the sweep before its time, with the command that continues it.

    Raises:
        Exception: `crash`, an error of the program.
    """
    if not folder.ledger.exists():
        raise LostResults(
            f"{folder.ledger} was removed while the sweep ran, and cannot be written again ({controller.fatal}). Its results "
            "are lost, except for its runs in MLflow."
        )
    if controller.fatal:
        raise UserError(
            f"{controller.fatal}. The sweep ended; all earlier results are kept. Solve this problem first. "
            f"{_way_on(folder)}"
        )
    if isinstance(crash, Exception):
        crash.add_note(f"This is an error in the program. All earlier results are kept. {_way_on(folder)}")
        raise crash


def _way_on(folder: SweepFolder) -> str:
    return f"Continue with: sweep resume {folder.called}"


def _close(controller: Controller, tracking: Tracking, state: SweepState, request: StopRequest) -> int:
    """Close the ledger, then the MLflow runs; returns how many events did not reach MLflow."""
    undelivered = 0
    with suppress(OSError), request.held():  # after a full disk, `fatal` has the reason
        controller.record(SweepClosed(state=state))
    with suppress(Interrupted, OSError):
        undelivered = tracking.close(state, at_most_seconds=URGENT_CLOSE_SECONDS if request.is_hurried else math.inf)
        record_runs(controller, tracking, undelivered)
    return undelivered


def _start_copy(folder: SweepFolder, uri: str) -> LedgerCopy | None:
    if not uri:
        return None
    check_place(uri)
    return LedgerCopy(folder, CopyPlace(uri).child(folder.name))


def _close_copy(copy: LedgerCopy, checkpoints: Checkpoints, console: Console) -> None:
    problem = copy.close()
    try:
        checkpoints.fetch(copy.place)
    except OSError as error:
        problem = problem or describe_store_error(error)
    if problem:
        console.print(
            f"! The copy at {copy.place.uri} is not complete ({problem}). The folder {copy.folder.path} has all events.",
            markup=False,
        )


def record_runs(controller: Controller, tracking: Tracking, undelivered: int) -> None:
    """Record the MLflow run ids in the ledger, and how many events did not arrive."""
    ids = {str(number): run for number, run in tracking.run_ids.items()}
    controller.record(RunsRecorded(ids=ids, undelivered=undelivered))
