"""The thin adapter between the controller and Ray Tune: a Searcher, a TrialScheduler and a Stopper of our own.

Not subclasses of Ray's ASHA and OptunaSearch: those keep private state that a resume loses, and cannot tell a stopped
trial from a completed one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from ray.tune import Stopper
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from search.core.asha import Decision
from search.core.controller import Controller
from search.core.trials import Trial
from training.loop.epoch_report import Report

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial as RayTrial

WorkerConfig = Callable[[Trial], dict[str, Any]]  # builds what Ray sends to the worker of a trial


class _Unpickled:
    """Ray pickles and copies these; the driver's own objects, open files included, must stay the only ones."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearcher(_Unpickled, Searcher):
    """Hands out the trials to go on with, then new ones, no more than there are slots."""

    def __init__(self, controller: Controller, make_config: WorkerConfig, slots: int) -> None:
        super().__init__()
        self.controller = controller
        self.make_config = make_config
        self.slots = slots

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        running = sum(trial.state == "running" for trial in self.controller.trials)
        # Asking early would ask before the running trials have said what they know.
        if running >= self.slots or self.controller.fatal:
            return None
        if (trial := self.controller.next_trial()) is not None:
            return self.make_config(trial)
        # Not before the last has ended: its worker may die, and it must then go on.
        return None if running else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """Nothing: it cannot tell a stopped trial from a completed one; the scheduler can."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep resumes from its ledger")


class LedgerScheduler(_Unpickled, TrialScheduler):
    """Writes what arrives into the ledger, and does what the controller decides."""

    # Results must come one by one: a decision is about one epoch.
    _supports_buffered_results = False

    def __init__(self, controller: Controller, stopping: Callable[[], bool]) -> None:
        super().__init__()
        self.controller = controller
        self.stopping = stopping
        self.left: set[str] = set()  # Ray's trials that were told to leave: what is said of them later is old

    def on_trial_result(self, tune_controller: TuneController, trial: RayTrial, result: dict[str, Any]) -> str:
        number = trial.config["trial"]
        if "message" not in result:  # Ray's own word that the function returned
            return self.CONTINUE
        # Text, because Ray flattens nested results before it hands them on.
        message = json.loads(result["message"])
        if "end" in message:
            if message.get("fatal"):
                self.controller.abort(message["reason"])
            self.controller.end(number, message["end"], message["reason"])
            return self.CONTINUE  # the worker has nothing more to do, and leaves by itself
        decision = self.controller.report(number, Report(**message["report"]), message["worker_seconds"])
        if decision is Decision.CONTINUE:
            return self.CONTINUE
        # A paused trial leaves its worker too: the controller resumes it from its checkpoint, wherever there is room.
        self.left.add(trial.trial_id)
        return self.STOP

    def on_trial_error(self, tune_controller: TuneController, trial: RayTrial) -> None:
        if trial.trial_id in self.left:
            return
        number, reason = trial.config["trial"], describe_death(trial)
        if "low on memory" in reason or "OutOfMemory" in reason:
            self.controller.end(number, "out_of_memory", reason)
        else:
            self.controller.lose(number, reason)

    def on_trial_complete(self, tune_controller: TuneController, trial: RayTrial, result: dict[str, Any]) -> None:
        # Also called for trials that the end of the sweep cut short.
        if not self.stopping() and trial.trial_id not in self.left:
            self.controller.end(trial.config["trial"], "failed", "the worker returned before the last epoch")

    def choose_trial_to_run(self, tune_controller: TuneController) -> RayTrial | None:
        trials = tune_controller.get_live_trials()
        return next((trial for trial in trials if trial.status == "PENDING"), None)

    def on_trial_add(self, tune_controller: TuneController, trial: RayTrial) -> None: ...
    def on_trial_remove(self, tune_controller: TuneController, trial: RayTrial) -> None: ...

    def debug_string(self) -> str:
        return ""


def describe_death(trial: RayTrial) -> str:
    """Why a trial's worker died, in one line."""
    lines = [line.strip() for line in str(trial.get_error() or "").splitlines()]
    telling = [line for line in lines if "memory" in line.lower() or "died" in line or "killed" in line]
    return (telling or lines or ["the worker died"])[0][:300]


class SweepStopper(_Unpickled, Stopper):
    """Ends the whole sweep when `should_stop` says so; `leave` is called first, as Tune's own end may take minutes."""

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
