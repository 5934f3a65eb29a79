"""The thin adapter between the controller and Ray Tune: a Searcher, a TrialScheduler and a Stopper of our own.

They are not subclasses of Ray's ASHA and OptunaSearch, because those keep private state that a resume loses, and cannot
distinguish a stopped trial from a completed one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from ray.tune import Stopper
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from ledger.trials import Trial
from search.core.asha import Decision
from search.core.controller import Controller
from search.runner.away import ImagesAway
from search.runner.machines.capacity import Capacity
from search.runner.machines.ray_failures import describe_death
from search.runner.worker import Message, TrialInput
from training.loop.epoch_report import Report

if TYPE_CHECKING:
    from ray.tune import PlacementGroupFactory
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial as RayTrial


class _Unpickled:
    """Ray pickles and copies its searchers and schedulers; these must stay single objects, because of their open files."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearcher(_Unpickled, Searcher):
    """Returns trials to resume, then new trials, at most as many as there are slots, and none while the images are away."""

    def __init__(
        self,
        controller: Controller,
        make_input: Callable[[Trial], TrialInput],
        slots: Callable[[int, int], int],
        stopping: Callable[[], bool] = lambda: False,
        away: ImagesAway | None = None,
    ) -> None:
        super().__init__()
        self.stopping = stopping
        self.away = away or ImagesAway()
        self.controller = controller
        self.make_input = make_input
        self.slots = slots

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        count = self.controller.trials.count()
        running = count.get("running", 0)
        left = max(0, self.controller.budget - len(self.controller.trials))
        slots = self.slots(running, count.get("interrupted", 0) + left)
        # While no trial runs, as while images are away, Tune waits for the next one and does not ask the Stopper.
        if not running and self.stopping():
            return Searcher.FINISHED
        # A trial that is drawn too early cannot use the reports of the running trials.
        if running >= slots or self.controller.fatal or self.away.holds():
            return None
        if (trial := self.controller.next_trial()) is not None:
            return asdict(self.make_input(trial))
        # Not before the last trial has ended: its worker may die, and the trial must then continue.
        return None if running else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """Do nothing: only the scheduler can distinguish a stopped trial from a completed one."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep resumes from its ledger")


class LedgerScheduler(_Unpickled, TrialScheduler):
    """Writes reports and ends into the ledger, and carries out the decisions of the controller."""

    # Results must come one by one, because each epoch needs a decision.
    _supports_buffered_results = False

    def __init__(
        self,
        controller: Controller,
        capacity: Capacity,
        stopping: Callable[[], bool] = lambda: False,
        away: ImagesAway | None = None,
    ) -> None:
        super().__init__()
        self.controller = controller
        self.capacity = capacity
        self.stopping = stopping
        self.away = away or ImagesAway()
        # Ray's trials that had to leave their worker; later messages about them are outdated.
        self.left: set[str] = set()

    def on_trial_result(self, tune_controller: TuneController, trial: RayTrial, result: dict[str, Any]) -> str:
        number = trial.config["trial"]
        if "message" not in result:  # Ray's own result at the end of the function
            return self.CONTINUE
        # JSON text, because Ray flattens nested results.
        message: Message = json.loads(result["message"])
        if "end" in message:
            if message.get("fatal"):
                self.controller.fatal = message["reason"]
            if message.get("away"):
                self.left.add(trial.trial_id)  # it goes on later, as another trial of Ray
                self.away.begin(self.controller.trials.by_number[number].recipe.data, message["reason"])
            if "node" in message and not self.capacity.is_prepared(message["node"]):
                # Ray gave a waiting trial to a node that had just joined. It is the node that failed, not the trial.
                self.left.add(trial.trial_id)
                self.controller.lose(number, message["reason"], "preemption")
            else:
                self.controller.end(number, message["end"], message["reason"])
            return self.CONTINUE  # the worker has finished and ends the trial by itself
        report = Report(**message["report"])
        decision = self.controller.report(number, report, message["worker_seconds"], message["host"])
        trials = self.controller.trials
        if decision is Decision.CONTINUE:
            limit = self.capacity.limit
            if limit is None or trials.by_number[number].state != "running" or trials.count()["running"] <= limit:
                return self.CONTINUE
            self.controller.lose(number, "another sweep has a right to its room on the cluster", "share")
        self.left.add(trial.trial_id)
        return self.STOP

    def on_trial_error(self, tune_controller: TuneController, trial: RayTrial) -> None:
        if trial.trial_id in self.left:
            return
        reason, cause = describe_death(trial)
        if cause == "memory":
            self.controller.end(trial.config["trial"], "out_of_memory", reason)
        else:
            self.controller.lose(trial.config["trial"], reason, cause)

    def on_trial_complete(self, tune_controller: TuneController, trial: RayTrial, result: dict[str, Any]) -> None:
        # Ray also calls this for trials that the end of the sweep interrupts.
        if not self.stopping() and trial.trial_id not in self.left:
            self.controller.end(trial.config["trial"], "failed", "the worker returned before the last epoch")

    def choose_trial_to_run(self, tune_controller: TuneController) -> RayTrial | None:
        trials = tune_controller.get_live_trials()
        waiting = next((trial for trial in trials if trial.status == "PENDING"), None)
        if waiting is None and self.capacity.limit is not None:
            # Tune keeps an idle worker for the next trial, and with it the room that another sweep may wait for.
            tune_controller._tune_controller._cleanup_cached_actors(force_all=True)  # type: ignore[attr-defined]
        return waiting

    def on_trial_add(self, tune_controller: TuneController, trial: RayTrial) -> None: ...
    def on_trial_remove(self, tune_controller: TuneController, trial: RayTrial) -> None: ...

    def debug_string(self) -> str:
        return ""


def make_placing() -> Callable[[dict[str, Any]], PlacementGroupFactory]:
    """Return a function for what a trial demands from Ray: its resources, on a node with the labels that it needs.

    Ray sends that function to the workers. As a nested one it is pickled by value, as in `bootstrap`.
    """

    def place(config: dict[str, Any]) -> PlacementGroupFactory:
        from ray.tune import PlacementGroupFactory

        return PlacementGroupFactory([config["resources"]], bundle_label_selector=[config["selector"]])

    return place


class SweepStopper(_Unpickled, Stopper):
    """Ends the whole sweep when `should_stop` is true. It calls `leave` first, because Tune may take minutes to end."""

    def __init__(self, should_stop: Callable[[], bool], leave: Callable[[], None]) -> None:
        self.should_stop = should_stop
        self.leave = leave

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        if not self.should_stop():
            return False
        self.leave()
        return True
