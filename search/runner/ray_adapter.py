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

from search.core.asha import Decision
from search.core.controller import Controller
from search.core.trials import Trial
from search.runner.worker import Message, TrialInput
from training.loop.epoch_report import Report

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial as RayTrial

# Parts of Ray's messages about a worker that was lost with its node, or ended by the SIGTERM of a drain or an eviction.
PREEMPTED = ("its node has died", "temporarily unavailable", "received a SIGTERM", "receives a SIGTERM", "preempted")

MakeInput = Callable[[Trial], TrialInput]


class _Unpickled:
    """Ray pickles and copies its searchers and schedulers; these must stay single objects, because of their open files."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearcher(_Unpickled, Searcher):
    """Returns trials to resume, then new trials, at most as many as there are slots."""

    def __init__(self, controller: Controller, make_input: MakeInput, slots: Callable[[], int]) -> None:
        super().__init__()
        self.controller = controller
        self.make_input = make_input
        self.slots = slots

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        running = sum(trial.state == "running" for trial in self.controller.trials)
        # A trial that is drawn too early cannot use the reports of the running trials.
        if running >= self.slots() or self.controller.fatal:
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

    def __init__(self, controller: Controller, stopping: Callable[[], bool]) -> None:
        super().__init__()
        self.controller = controller
        self.stopping = stopping
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
                self.controller.abort(message["reason"])
            self.controller.end(number, message["end"], message["reason"])
            return self.CONTINUE  # the worker has finished and ends the trial by itself
        decision = self.controller.report(number, Report(**message["report"]), message["worker_seconds"])
        if decision is Decision.CONTINUE:
            return self.CONTINUE
        # A paused trial also leaves its worker: the controller resumes it from its checkpoint on any free worker.
        self.left.add(trial.trial_id)
        return self.STOP

    def on_trial_error(self, tune_controller: TuneController, trial: RayTrial) -> None:
        if trial.trial_id in self.left:
            return
        number, reason = trial.config["trial"], describe_death(trial)
        if "low on memory" in reason or "OutOfMemory" in reason:
            self.controller.end(number, "out_of_memory", reason)
        else:
            text = str(trial.get_error() or "")
            self.controller.lose(number, reason, "preemption" if any(map(text.__contains__, PREEMPTED)) else "worker")

    def on_trial_complete(self, tune_controller: TuneController, trial: RayTrial, result: dict[str, Any]) -> None:
        # Ray also calls this for trials that the end of the sweep interrupts.
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
    """Return in one line why a trial's worker died."""
    lines = [line.strip() for line in str(trial.get_error() or "").splitlines()]
    words = ("memory", "died", "killed", "unavailable")
    telling = [line for line in lines if any(word in line.lower() for word in words)]
    return (telling or lines or ["the worker died"])[0][:300]


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
