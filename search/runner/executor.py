"""Run the trials of a sweep: on Ray's workers, with Ray Tune, or in this process, for a debugger."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ledger.folder import SweepFolder
from ledger.settings import Settings
from ledger.trials import Trial
from search.arguments import VERBOSE
from search.core.asha import Decision
from search.core.controller import Controller
from search.runner.away import ImagesAway
from search.runner.display import Display
from search.runner.machines.capacity import Capacity
from search.runner.machines.ray_process import RAY_SETTINGS, added_variables, watch_servers, without_secrets, write_own
from search.runner.worker import DIVERGED, TrialInput, bootstrap, share_resources

SILENT_SECONDS = 15.0  # after which a head node is lost; Ray would end this process after 60, without a word
PENDING = "100000"  # Tune must ask whenever a worker could be free; the searcher itself starts no more trials than fit

if TYPE_CHECKING:
    from ray import tune

    from training.loop.epoch_report import Report


class Work(Protocol):
    """A sweep whose trials an executor runs: a `SweepRun`."""

    folder: SweepFolder
    controller: Controller
    capacity: Capacity
    settings: Settings
    display: Display

    def should_stop(self) -> bool: ...
    def leave(self) -> None: ...
    def abandon(self) -> None: ...


class RayLost(BaseException):
    """Leaves Tune at once. After an `Exception` it would end its workers, which hangs without Ray's servers."""


class ServerWatch:
    """Whether Ray's servers on this machine and the head node of its cluster answer; Ray itself would wait for them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._silence = watch_servers(work.settings.address)
        self._is_lost = False
        self.is_over = False  # whether Tune has ended
        if not work.settings.is_local:
            threading.Thread(target=self._end_in_time, daemon=True).start()

    def is_lost(self) -> bool:
        self._is_lost = self._is_lost or self._silence() > SILENT_SECONDS
        return self._is_lost

    def should_stop(self) -> bool:
        return self._work.should_stop() or self.is_lost()

    def look(self, running: int, unstarted: int) -> int:
        """Return how many more trials may start; none while the head node is silent, as its answer is needed for that."""
        return 0 if self._silence() else self._work.capacity.look(running, unstarted)

    def leave(self) -> None:
        self._work.leave()
        if self.is_lost():
            raise RayLost

    def _end_in_time(self) -> None:
        while not self.is_over:
            time.sleep(1.0)
            if not self.is_over and self._silence() > 2 * SILENT_SECONDS:
                self._work.abandon()  # Tune waits for the head node, which nothing interrupts


@added_variables(RAY_SETTINGS | {"TUNE_MAX_PENDING_TRIALS_PG": PENDING})
def run_on_ray(work: Work) -> None:
    """Let Ray Tune run trials until none is left, or the sweep should stop.

    Raises:
        RayLost: Ray's servers on this machine have ended, or the head node of its cluster.
    """
    import ray

    # Errors when Tune saves its own state do not matter, because the ledger is the state. It also has the reasons of lost
    # workers, whose tracebacks would hide our sentences.
    for name in ("execution.experiment_state", "execution.tune_controller", "tune"):
        logging.getLogger(f"ray.tune.{name}").setLevel(logging.INFO if VERBOSE in os.environ else logging.CRITICAL)
    with suppress(OSError):  # a full disk is noticed by the ledger
        write_own(work.folder.processes)
    watch = ServerWatch(work)
    tuner = _make_tuner(work, watch)
    try:
        with without_secrets():
            tuner.fit()
    except Exception:
        if not watch.is_lost():
            raise
    finally:
        if watch.is_lost():
            ray.shutdown()  # while Tune's objects live: their deletion would wait a minute for the server and end this process
        watch.is_over = True
    if watch.is_lost():
        raise RayLost


def _make_tuner(work: Work, watch: ServerWatch) -> tune.Tuner:
    from ray import tune
    from ray.tune.trainable import wrap_function

    from search.runner.ray_adapter import LedgerScheduler, LedgerSearcher, SweepStopper, make_placing

    controller, away, name = work.controller, ImagesAway(work.display.line), work.folder.name
    workers = tune.with_resources(wrap_function(bootstrap("search.runner.worker", "run_trial")), make_placing())
    # In the lists of Ray and of processes, which leave out what is before a dot.
    workers.__name__ = workers.__qualname__ = name.replace(".", "_")
    return tune.Tuner(
        workers,
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearcher(controller, partial(_make_input, work), watch.look, watch.should_stop, away),
            scheduler=LedgerScheduler(controller, work.capacity, watch.should_stop, away),
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=lambda trial: f"{name}/{trial.config['trial']:04d}",  # Tune pickles this
            trial_dirname_creator=lambda trial: f"{trial.config['trial']:04d}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            storage_path=str(work.folder.ray),
            name=time.strftime("%Y%m%d-%H%M%S"),
            verbose=0,
            stop=SweepStopper(watch.should_stop, watch.leave),
            failure_config=tune.FailureConfig(max_failures=0),  # the controller restarts trials and counts the restarts
        ),
    )


def _make_input(work: Work, trial: Trial) -> TrialInput:
    capacity, search, copy_to = work.capacity, work.controller.space.search, work.settings.copy_to
    demand = capacity.demand
    return TrialInput(
        trial.number,
        trial.recipe.model_dump(),
        str(work.folder.trial(trial.number)),
        search.metric,
        search.score,
        reported=trial.epoch,
        cpus=demand.cpus,
        uses_share=work.settings.cpus_per_trial is None,
        gpus=demand.gpus,
        crashes=trial.crashes,
        resources=demand.resources,
        selector=capacity.selector,
        is_new=trial.resumes == 0,
        copy=f"{copy_to}/{work.folder.name}/trials/{trial.name}" if copy_to else "",
    )


def run_here(work: Work) -> None:
    """Train until no trial is left, or the sweep should stop. An error in a training ends the sweep."""
    while not work.should_stop() and (trial := work.controller.next_trial()) is not None:
        _train(work, trial)


def _train(work: Work, trial: Trial) -> None:
    from training.train import train

    controller, search, demand = work.controller, work.controller.space.search, work.capacity.demand
    folder, resources = work.folder.trial(trial.number), share_resources(trial.recipe, demand.cpus, demand.gpus, False)
    folder.mkdir(parents=True, exist_ok=True)

    def on_report(report: Report) -> bool:
        decision = controller.report(trial.number, report)
        return decision is Decision.CONTINUE and not work.should_stop()

    outcome = train(
        trial.recipe, folder, metric=search.metric, score=search.score, resources=resources, on_report=on_report
    )
    if outcome.state == "diverged":
        controller.end(trial.number, "diverged", DIVERGED)
