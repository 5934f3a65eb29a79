"""Run trials with Ray Tune until none is left, then close the ledger and the MLflow runs and end all processes."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.core.controller import Controller
from search.core.record import SweepRecord
from search.core.trials import Trial
from search.display.progress import Progress
from search.runner.checkpoints import Checkpoints
from search.runner.inbox import Inbox
from search.runner.interrupt import URGENT_CLOSE_SECONDS, Interrupted, Request, interruptible
from search.runner.machines.capacity import Capacity
from search.runner.machines.cluster import RAY_SETTINGS, added_variables, find_dashboard
from search.runner.start.plan import Plan
from search.runner.worker import TrialInput, bootstrap, project_root
from search.storage.copies import Place, check_place, describe_store_error
from search.storage.events import AnyEvent, DriverStarted, EpochReported, RunsRecorded, SweepClosed, SweepState
from search.storage.folder import SweepFolder
from search.storage.ledger_copy import LedgerCopy
from search.storage.settings import Settings
from search.tracking.writer import Tracking
from training.errors import UserError
from training.process.resources import split_cpus

if TYPE_CHECKING:
    from rich.console import Console

PENDING = 100_000  # Tune must ask whenever a worker could be free; the searcher itself starts no more trials than fit


@dataclass(frozen=True)
class SweepEnd:
    """The result of a driver."""

    record: SweepRecord
    state: SweepState
    undelivered: int  # events that did not reach MLflow


def drive(
    folder: SweepFolder, controller: Controller, settings: Settings, plan: Plan, tracking: Tracking, console: Console
) -> SweepEnd:
    """Run trials until none is left, the time is over or a signal comes; then close the ledger and the MLflow runs.

    Raises:
        UserError: nothing more could be written.
        Interrupted: the process must end at once.
    """
    budget = settings.time_budget_seconds
    deadline = time.time() + budget if budget else math.inf
    controller.record(_describe_driver(plan))
    progress = Progress(
        controller, console=console, slots=lambda: plan.capacity.slots, deadline=deadline if budget else None
    )
    copy = start_copy(folder, settings.copy_to)
    checkpoints = Checkpoints(folder, controller.trials, settings.keep_best, *([copy.delete] if copy else []))
    controller.subscribe(checkpoints)
    controller.subscribe(progress)
    if copy is not None:
        controller.subscribe(copy)

    def is_stop_requested() -> bool:
        return folder.stop_request.exists() or tracking.stop_requested

    inbox = Inbox(folder, tracking, controller)
    with interruptible() as request:
        with progress:
            crash = _run_trials(
                folder, controller, plan.capacity, settings, request, deadline, progress, is_stop_requested, inbox
            )
        with suppress(OSError), request.held():
            inbox.collect(at_once=True)  # what came late is trained after a resume
        state: SweepState = "interrupted"
        if controller.is_done:
            state = "completed"
        elif time.time() > deadline and not request():
            state = "time_budget"
        undelivered = _close(controller, tracking, state, request)
        if copy is not None:
            _close_copy(copy, checkpoints, console)
    way_on = f"Continue with: sweep resume {folder.name}"
    if controller.fatal:
        raise UserError(
            f"{controller.fatal}. The sweep ended; all earlier results are kept. Solve this problem first. {way_on}"
        )
    if crash:
        crash.add_note(f"This is an error in the program. All earlier results are kept. {way_on}")
        raise crash
    if request.is_hurried and state != "completed":
        raise Interrupted(request.number or signal.SIGTERM, way_on)
    return SweepEnd(SweepRecord(folder, controller.ledger.events), state, undelivered)


def _describe_driver(plan: Plan) -> DriverStarted:
    demand = plan.capacity.demand
    threads, _ = split_cpus(demand.cpus, in_memory=True)
    return DriverStarted(
        pid=os.getpid(),
        host=socket.gethostname(),
        threads=threads,
        slots=plan.capacity.slots,
        gpus=demand.gpus,
        dashboard=find_dashboard(),
        seconds=plan.seconds,
    )


def _run_trials(
    folder: SweepFolder,
    controller: Controller,
    capacity: Capacity,
    settings: Settings,
    request: Request,
    deadline: float,
    progress: Progress,
    is_stop_requested: Callable[[], bool],
    inbox: Inbox,
) -> Exception | None:
    """Let Ray Tune run trials until the sweep should stop. Returns an exception of our code that ended it earlier."""

    def should_stop() -> bool:
        return time.time() > deadline or request() or is_stop_requested() or bool(controller.fatal)

    def leave() -> None:
        _settle(controller, request)
        if request.is_hurried:
            raise Interrupted(request.number or signal.SIGTERM)
        if request():
            progress.say_once("Ctrl-C: waiting for the workers to end. Press it again to end them at once.")

    crash = None
    try:
        with added_variables(RAY_SETTINGS | {"TUNE_MAX_PENDING_TRIALS_PG": str(PENDING)}):
            _tune(folder, controller, capacity, settings, should_stop, leave, inbox)
    except Interrupted:
        pass  # the request has recorded the signal
    except Exception as error:  # noqa: BLE001 - the caller raises it, when the ledger and MLflow are closed
        crash = None if controller.fatal else error
    _settle(controller, request)
    return crash


def _settle(controller: Controller, request: Request) -> None:
    with request.held():
        controller.interrupt("the sweep was stopped")


def _close(controller: Controller, tracking: Tracking, state: SweepState, request: Request) -> int:
    """Close the ledger, then the MLflow runs; returns how many events did not reach MLflow."""
    undelivered = 0
    with suppress(OSError), request.held():  # after a full disk, `fatal` has the reason
        controller.record(SweepClosed(state=state))
    with suppress(Interrupted, OSError):
        undelivered = tracking.close(state, at_most_seconds=URGENT_CLOSE_SECONDS if request.is_hurried else math.inf)
        record_runs(controller, tracking, undelivered)
    return undelivered


def start_copy(folder: SweepFolder, uri: str) -> LedgerCopy | None:
    """Begin to copy a sweep to `uri/NAME`; None without a URI.

    Raises:
        UserError: the store refuses, or does not answer.
    """
    if not uri:
        return None
    check_place("--copy-to", uri)
    return LedgerCopy(folder, Place(uri).child(folder.name))


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


def _tune(
    folder: SweepFolder,
    controller: Controller,
    capacity: Capacity,
    settings: Settings,
    should_stop: Callable[[], bool],
    leave: Callable[[], None],
    inbox: Inbox,
) -> None:
    from ray import tune

    from search.runner.ray_adapter import LedgerScheduler, LedgerSearcher, SweepStopper, make_placing
    from search.runner.start.probe import Probe

    # Errors when Tune saves its own state do not matter, because the ledger is the state.
    logging.getLogger("ray.tune.execution.experiment_state").setLevel(logging.CRITICAL)

    probe = Probe(controller)
    controller.subscribe(probe)
    controller.subscribe(_follow_memory(capacity))

    def stop_or_collect() -> bool:
        probe.collect()  # Tune calls this in each pass of its loop
        inbox.collect()
        if capacity.problem:
            controller.abort(capacity.problem)
        return should_stop()

    def find_slots() -> int:
        inbox.collect()  # while no trial runs, Tune only asks for the next one
        return capacity.look()

    def make_input(trial: Trial) -> TrialInput:
        own = capacity.demand_of(trial)
        return TrialInput(
            trial.number,
            trial.recipe.model_dump(),
            str(folder.trial(trial.number)),
            controller.space.search.metric,
            reported=trial.epoch,
            cpus=own.cpus,
            uses_share=settings.named_cpus is None,
            gpus=own.gpus,
            crashes=trial.crashes,
            cache=str(folder.rates),
            resources=own.resources,
            avoided=capacity.avoided,
            is_new=trial.resumes == 0,
            copy=f"{settings.copy_to}/{folder.name}/trials/{trial.name}" if settings.copy_to else "",
            memory_mb=own.memory_mb,
        )

    tuner = tune.Tuner(
        tune.with_resources(bootstrap(project_root(), "search.runner.worker", "run_trial"), make_placing()),
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearcher(controller, make_input, find_slots, should_stop),
            scheduler=LedgerScheduler(controller, should_stop, capacity.is_prepared, capacity.can_enlarge),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: f"{trial.config['trial']:04d}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder.ray),
            name=time.strftime("%Y%m%d-%H%M%S"),
            verbose=0,
            stop=SweepStopper(stop_or_collect, leave),
            failure_config=tune.FailureConfig(max_failures=0),  # the controller restarts trials and counts the restarts
        ),
    )
    try:
        tuner.fit()
    finally:
        probe.close(lambda: controller.is_done and not should_stop())


def _follow_memory(capacity: Capacity) -> Callable[[AnyEvent], None]:
    """Return a listener that gives packed trials more memory when a report shows that they need it."""

    def follow(event: AnyEvent) -> None:
        if isinstance(event, EpochReported):
            peaks = [event.metrics.get(name) or 0.0 for name in ("peak_memory_mb", "evaluation_memory_mb")]
            capacity.learn(max(peaks))

    return follow
