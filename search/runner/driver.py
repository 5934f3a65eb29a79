"""One sweep from its space to its best recipe: checks first, then Ray, then what the ledger says is next."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from search.core.controller import Controller
from search.core.events import (
    AnyEvent,
    Dataset,
    DriverStarted,
    Extension,
    RunsRecorded,
    SweepClosed,
    SweepStarted,
    SweepState,
)
from search.core.folder import SweepFolder
from search.core.ledger import Ledger
from search.core.record import SweepRecord
from search.core.settings import Settings
from search.core.trials import Trial
from search.display.phases import Phases
from search.display.progress import Progress
from search.runner.checkpoints import Checkpoints
from search.runner.cluster import Demand, fit_to_cluster, list_nodes, plan_demand, probe_cluster, start_ray
from search.runner.early_checks import check_early, nearest_folder
from search.runner.interrupt import URGENT_CLOSE_SECONDS, Interrupted, Request, interruptible, listen, resumable
from search.runner.worker import bootstrap, project_root, split_cpus
from search.tracking.writer import Tracking
from spaces.space import Space
from training.contract.specs import FILE_DATA
from training.errors import UserError
from training.recipe import Recipe, flatten


@dataclass(frozen=True)
class Result:
    """How a sweep ended, `undelivered` events of MLflow that did not arrive."""

    folder: SweepFolder
    controller: Controller
    state: SweepState
    undelivered: int

    @property
    def record(self) -> SweepRecord:
        """The sweep as its ledger has it now; nothing is read again."""
        return SweepRecord(self.folder, self.controller.ledger.events)


def run_sweep(
    folder: SweepFolder, space: Space, settings: Settings, console: Any, opening: Sequence[AnyEvent] = ()
) -> Result:
    """Run a new sweep to its end, its time budget, or Ctrl-C.

    `opening` are the ledger's first events after its header: warm starts, or all trials of a replication.

    Raises:
        UserError: something is wrong with the space, the data, the machines or the tracking server; no sweep was made.
    """
    probe_cluster(settings.address)
    console.print(f"Sweep {folder.name} starts.", markup=False)
    with Phases(console) as phases:
        dataset = None
        if settings.address is None:
            phases.begin("checking this machine")
            check_early(space, folder.path.parent, settings.cpus_per_trial, settings.gpus_per_trial, phases.begin)
            phases.begin("checking the data")
            dataset = check_data(space)
        sweep_id = uuid.uuid4().hex
        tracking = _make_tracking(folder.name, sweep_id, space, settings, dataset)
        plan = _prepare(space, settings, folder.path.parent, tracking, phases, console)
    header = make_header(folder.name, sweep_id, plan.space, settings, dataset)
    create_folder(folder, header, *opening)
    with folder.locked():
        controller = Controller(
            plan.space, Ledger(folder.ledger), seed=settings.seed, resolve=plan.resolve, listeners=[tracking]
        )
        return _drive(folder, controller, settings, plan, tracking, console)


def _deliver(record: SweepRecord, tracking: Tracking) -> Result:
    """Send MLflow what it missed of a sweep whose trials have all ended.

    Raises:
        UserError: it has everything.
    """
    if record.is_delivered:
        raise UserError(
            f"{record.name} is completed: all {len(record.trials)} trials have ended. See sweep show, or run more: "
            f"sweep extend {record.name} --trials N."
        )
    tracking.start()
    tracking.wait_ready()
    tracking.replay(record.events)
    undelivered = tracking.close("completed")
    controller = Controller(record.space, Ledger(record.folder.ledger, record.events), seed=record.settings.seed)
    _record_runs(controller, tracking, undelivered)
    return Result(record.folder, controller, "completed", undelivered)


def make_header(
    name: str, sweep_id: str, space: Space, settings: Settings, dataset: Dataset | None = None
) -> SweepStarted:
    """Describe a new sweep as the ledger keeps it; a password of its store stays in the environment."""
    return SweepStarted(name=name, id=sweep_id, space=space.to_yaml(), settings=settings.masked(), dataset=dataset)


def create_folder(folder: SweepFolder, header: SweepStarted, *events: AnyEvent) -> None:
    """Make a sweep's folder with its space and the first events of its ledger, whole or not at all."""
    partial = SweepFolder(folder.path.with_name(f".{folder.name}-{header.id}"))
    partial.path.mkdir(parents=True)
    partial.space.write_text(header.space)
    ledger = Ledger(partial.ledger)
    for event in (header, *events):
        ledger.append(event)
    ledger.close()
    partial.path.rename(folder.path)


def resume_sweep(
    folder: SweepFolder, console: Any, time_budget_seconds: float | None = None, more_trials: int = 0
) -> Result:
    """Go on with a sweep that was interrupted, however it was; `more_trials` extends it.

    Raises:
        UserError: another driver runs it, it is completed, or its space file was changed.
    """
    with folder.locked():
        record = SweepRecord.open(folder)
        check_frozen_space(record)
        settings = replace(record.settings, time_budget_seconds=time_budget_seconds)
        ledger = Ledger(folder.ledger, record.events)
        if more_trials:
            if record.replication is not None:
                raise UserError(f"{folder.name} runs a fixed list of trials, which cannot be extended.")
            ledger.append(Extension(trials=more_trials))
            record = SweepRecord(folder, ledger.events)
        tracking = _make_tracking(folder.name, record.header.id, record.space, settings, record.header.dataset)
        if record.is_done:
            return _deliver(record, tracking)
        console.print(f"Sweep {folder.name}: going on after {len(record.trials)} of {record.budget} trials.")
        with resumable(folder.name), Phases(console) as phases:
            # Its runs are in the ledger: they can wait for a server that is away.
            plan = _prepare(record.space, settings, folder.path.parent, tracking, phases, console, patient=True)
        tracking.replay(ledger.events)
        controller = Controller(record.space, ledger, seed=settings.seed, resolve=plan.resolve, listeners=[tracking])
        controller.take_over()
        return _drive(folder, controller, settings, plan, tracking, console)


def check_data(space: Space) -> Dataset:
    """Find what is wrong with the data before anything is started, and say which it is; data is never a hole.

    Raises:
        UserError: it is missing, too small to split, or has unreadable images.
    """
    from training.data.files.check import check_images
    from training.data.sources.identity import identify
    from training.data.sources.load_data import load_data

    spec = space.baselines()[0].data
    data = load_data(spec)
    check_images(data)
    return identify(data, spec)


def check_frozen_space(record: SweepRecord) -> None:
    """Refuse to go on with a sweep whose `space.yaml` was changed since it started.

    Raises:
        UserError: naming the first line that differs.
    """
    folder = record.folder
    try:
        now, then = folder.space.read_text().splitlines(), record.header.space.splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise UserError(
            f"{folder.space}: cannot be read ({reason}). Put it back: sweep repair {folder.name}."
        ) from None
    if now != then:
        number = next((i for i, pair in enumerate(zip(now, then, strict=False)) if pair[0] != pair[1]), len(then))
        line = now[number].strip() if number < len(now) else "(missing)"
        was = then[number].strip() if number < len(then) else "(nothing)"
        raise UserError(
            f"{folder.space}:{number + 1}: changed since the sweep started, from `{was}` to `{line}`. A sweep has one "
            f"space: put it back (sweep repair {folder.name}), or start a new sweep."
        )


def _make_tracking(name: str, sweep_id: str, space: Space, settings: Settings, dataset: Dataset | None) -> Tracking:
    return Tracking(
        settings.tracking_uri,
        settings.experiment,
        sweep=name,
        sweep_id=sweep_id,
        metric=space.search.metric,
        space=space.to_yaml(),
        params=flatten({"search": space.search.model_dump()}),
        dataset=dataset,
    )


@dataclass(frozen=True)
class Plan:
    """What the machines made of a space: what is left of it, what a trial gets, what `auto` means, and the time it took."""

    space: Space
    demand: Demand
    resolve: Callable[[Recipe], Recipe]
    seconds: dict[str, float]


def _prepare(
    space: Space,
    settings: Settings,
    storage: Path,
    tracking: Tracking,
    phases: Phases,
    console: Any,
    patient: bool = False,
) -> Plan:
    """Start Ray and find out what this space can be on its machines, while the MLflow store opens."""
    from search.runner.preparation import inputs_of, make_resolver, prepare_cluster, prepare_machine

    is_local, is_server = settings.address is None, settings.tracking_uri.startswith("http")
    if is_server or not is_local:
        tracking.start(patient)
    if is_server:
        phases.begin("asking the MLflow server")
        tracking.wait_ready()  # quick to tell; a database is made while Ray starts
    inputs = [recipe.model_dump() for recipe in inputs_of(space)]
    clock = [time.perf_counter()]

    def prepare_here() -> dict[str, Any]:
        fact = prepare_machine(str(nearest_folder(storage)), inputs, 0)
        if not fact["problem"] and not is_server:
            tracking.start(patient)  # only now: a sweep that is refused makes no database
        return fact

    pool = ThreadPoolExecutor(1)
    # This machine is prepared in this process, which needs torch for the export anyway, while Ray starts.
    here = pool.submit(prepare_here) if is_local else None
    pool.shutdown(wait=False)  # an interrupted start-up must not wait for a download
    phases.begin(f"starting Ray{'' if settings.address is None else f', at {settings.address}'}")
    _start_ray(settings)
    clock.append(time.perf_counter())
    phases.begin("preparing this machine: weights, image sizes" if here else "asking the machines of the cluster")
    facts = [here.result()] if here else []
    _raise_problems(facts)
    nodes = list_nodes()
    demand = plan_demand(nodes, settings.cpus_per_trial, settings.gpus_per_trial)
    space, notes = fit_to_cluster(space, can_bf16=True, has_gpus=demand.gpus > 0, devices=demand.devices)
    if demand.gpus or not facts:
        phases.begin(f"preparing {len(nodes)} machine{'s' * (len(nodes) != 1)}: data, weights, image sizes")
        storage.mkdir(parents=True, exist_ok=True)
        facts = prepare_cluster(inputs, storage, nodes, demand.gpus)
        _raise_problems(facts)
        if died := len(nodes) - len(facts):
            notes.append(f"Of {len(nodes)} machines {died} died while being prepared; their trials start elsewhere.")
    if demand.gpus:
        space, more = fit_to_cluster(
            space, can_bf16=any(fact["bf16"] for fact in facts), has_gpus=True, devices=demand.devices
        )
        notes += more
    clock.append(time.perf_counter())
    phases.begin("opening the MLflow store")
    tracking.wait_ready()
    clock.append(time.perf_counter())
    notes += {remark for fact in facts if (remark := fact.get("remark"))}  # one line where the machines agree
    for note in notes:
        console.print(note)
    seconds = dict(zip(("ray", "preparation", "store"), (b - a for a, b in pairwise(clock)), strict=True))
    return Plan(space, demand, make_resolver(facts), seconds)


def _start_ray(settings: Settings) -> None:
    try:
        start_ray(settings.address, settings.cpus_per_trial)
    except SystemExit:  # what Ray makes of SIGTERM while it starts
        raise Interrupted(signal.SIGTERM) from None
    listen()  # Ray took SIGTERM for itself


def _raise_problems(facts: list[dict[str, Any]]) -> None:
    for fact in facts:
        if fact["problem"]:
            raise UserError(fact["problem"])


def _drive(
    folder: SweepFolder, controller: Controller, settings: Settings, plan: Plan, tracking: Tracking, console: Any
) -> Result:
    """Run trials until there are no more, then leave everything true: ledger, MLflow, checkpoints, processes."""
    demand = plan.demand
    budget = settings.time_budget_seconds
    deadline = time.time() + budget if budget else None
    threads, _ = split_cpus(demand.cpus, in_memory=True)
    controller.record(
        DriverStarted(
            pid=os.getpid(),
            host=socket.gethostname(),
            threads=threads,
            slots=demand.slots,
            gpus=demand.gpus,
            seconds=plan.seconds,
        )
    )
    progress = Progress(controller, console=console, slots=demand.slots, deadline=deadline)
    controller.subscribe(Checkpoints(folder, controller.trials, settings.keep_best))
    controller.subscribe(progress)
    crash: Exception | None = None
    with interruptible() as request:
        with progress:

            def should_stop() -> bool:
                past = deadline is not None and time.time() > deadline
                return past or request() or folder.stop_request.exists() or bool(controller.fatal)

            def leave() -> None:
                _settle(controller, request)
                if request.is_hurried:
                    raise Interrupted(request.number or signal.SIGTERM)
                if request():
                    progress.say_once("Ctrl-C: the workers end their work. Press it again to skip that.")

            try:
                _tune(folder, controller, demand, should_stop, leave)
            except Interrupted:
                pass  # the request remembers it
            except Exception as error:  # noqa: BLE001 - raised again below, when all is settled
                crash = None if controller.fatal else error
            _settle(controller, request)
        is_past = deadline is not None and time.time() > deadline
        state: SweepState = (
            "completed" if controller.is_done else "time_budget" if is_past and not request() else "interrupted"
        )
        undelivered = _close(controller, tracking, state, request)
    way_on = f"Go on with it: sweep resume {folder.name}"
    if controller.fatal:
        raise UserError(
            f"{controller.fatal}. The sweep ended there; everything before it is kept. Mend that first. {way_on}"
        )
    if crash:
        crash.add_note(f"A fault of ours. Everything before it is kept. {way_on}")
        raise crash
    if request.is_hurried and state != "completed":
        raise Interrupted(request.number or signal.SIGTERM, way_on)
    return Result(folder, controller, state, undelivered)


def _settle(controller: Controller, request: Request) -> None:
    with request.held():
        controller.interrupt("the sweep was stopped")


def _close(controller: Controller, tracking: Tracking, state: SweepState, request: Request) -> int:
    """Close the ledger, then MLflow's runs; returns how many events did not reach MLflow."""
    undelivered = 0
    with suppress(OSError), request.held():  # of a full disk, `fatal` tells
        controller.record(SweepClosed(state=state))
    with suppress(Interrupted, OSError):
        undelivered = tracking.close(state, at_most_seconds=URGENT_CLOSE_SECONDS if request.is_hurried else math.inf)
        _record_runs(controller, tracking, undelivered)
    return undelivered


def _record_runs(controller: Controller, tracking: Tracking, undelivered: int) -> None:
    ids = {str(number): run for number, run in tracking.run_ids.items()}
    controller.record(RunsRecorded(ids=ids, undelivered=undelivered))


def _tune(
    folder: SweepFolder,
    controller: Controller,
    demand: Demand,
    should_stop: Callable[[], bool],
    leave: Callable[[], None],
) -> None:
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(demand.slots)  # or reused workers idle
    from ray import tune

    from search.runner.ray_adapter import LedgerScheduler, LedgerSearcher, SweepStopper

    # Whether Tune can save its own state says nothing: the ledger is the state.
    logging.getLogger("ray.tune.execution.experiment_state").setLevel(logging.CRITICAL)

    def make_config(trial: Trial) -> dict[str, Any]:
        threads, workers = split_cpus(demand.cpus, trial.recipe.data.name not in FILE_DATA)
        return {
            "trial": trial.number,
            "recipe": trial.recipe.model_dump(),
            "folder": str(folder.trial(trial.number)),
            "metric": controller.space.search.metric,
            "reported": trial.epoch,
            "threads": threads,
            "loader_workers": workers,
            "gpus": demand.gpus,
            "losses": trial.losses,
        }

    tuner = tune.Tuner(
        tune.with_resources(
            bootstrap(project_root(), "search.runner.worker", "run_trial"), {"cpu": demand.cpus, "gpu": demand.gpus}
        ),
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearcher(controller, make_config, demand.slots),
            scheduler=LedgerScheduler(controller, should_stop),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: f"{trial.config['trial']:04d}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            storage_path=str(folder.ray),
            name=time.strftime("%Y%m%d-%H%M%S"),
            verbose=0,
            stop=SweepStopper(should_stop, leave),
            failure_config=tune.FailureConfig(max_failures=0),  # the controller restarts trials, and counts
        ),
    )
    tuner.fit()
