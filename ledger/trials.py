"""The trials of a sweep: a projection of its ledger, folded event by event."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from ledger.events import (
    AnyEvent,
    DataMoved,
    DriverStarted,
    EndState,
    EpochReported,
    Extension,
    Origin,
    State,
    SweepStarted,
    TrialAdded,
    TrialEnded,
    TrialLost,
    TrialResumed,
    TrialStarted,
)
from spaces.parameters.draws import Params
from training.loop.epoch_report import Answers
from training.recipe import Recipe
from training.score_metrics import COST, MAXIMISED, PEAKS

UNFINISHED: tuple[State, ...] = ("running", "interrupted")


@dataclass
class Trial:
    """One recipe trained under the scheduler. `number` identifies it; `reports` has one entry for each epoch."""

    number: int
    recipe: Recipe
    params: Params | None
    origin: Origin
    started: float
    state: State = "running"
    reason: str = ""
    ended: float | None = None
    reports: list[EpochReported] = field(default_factory=list)
    resumes: int = 0  # number of times that it was started again
    crashes: int = 0  # number of its workers that died by themselves
    preemptions: int = 0  # number of its workers that were lost with their node, or were drained

    @property
    def name(self) -> str:
        return f"{self.number:04d}"

    @property
    def epochs(self) -> int:
        return self.recipe.epochs

    @property
    def epoch(self) -> int:
        return self.reports[-1].epoch if self.reports else 0

    @property
    def score(self) -> float | None:
        """The validation value of the epoch whose weights are kept: the best so far, or the last."""
        return self.reports[-1].score if self.reports else None

    @property
    def standard_error(self) -> float:
        return self.reports[-1].standard_error

    @property
    def answers(self) -> Answers:
        """What the kept weights say of the validation images; empty where that is not known."""
        return (self.reports[-1].labels, self.reports[-1].probabilities) if self.reports else ((), "")

    @property
    def host(self) -> str | None:
        """The machine of its last epoch; None if there is none, or it is not known."""
        return (self.reports[-1].host or None) if self.reports else None

    @property
    def seconds(self) -> float | None:
        """The training time, with that of the range test for `optimizer.lr: auto`; None if it was not measured."""
        costs = [self.reports[-1].metrics.get(name) for name in COST] if self.reports else []
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    @property
    def memory_mb(self) -> float | None:
        """The largest memory of training and evaluation in 2**20 bytes, on the GPU or of the process; None if not measured."""
        peaks = [report.metrics.get(name) for report in self.reports for name in PEAKS]
        return max((peak for peak in peaks if peak is not None), default=None)

    @property
    def kept_metrics(self) -> dict[str, float | None]:
        """The metrics of the epoch whose weights are kept."""
        best = self.reports[-1].best_epoch if self.reports else 0
        return next((report.metrics for report in self.reports if report.epoch == best), {})

    @property
    def kept_loss(self) -> float:
        """The validation loss of that epoch; infinite if there is none."""
        loss = self.kept_metrics.get("val_loss")
        return math.inf if loss is None else loss


class Trials:
    """All trials of a ledger, and which of them is the best."""

    def __init__(self, metric: str, events: Iterable[AnyEvent] = ()) -> None:
        self.metric = metric
        self.by_number: dict[int, Trial] = {}
        self._by_recipe: dict[str, int] = {}  # the first trial of each recipe
        self._images: int | None = None  # in the training part
        self.extra = 0  # trials added after the start
        self.interruptions: list[tuple[float, float]] = []  # times without a driver, in seconds since 1970
        self._used = -1  # the highest number of a trial, also of one whose start was lost with a damaged line
        self._first = self._last = 0.0  # when the first driver began; the last report or end of a trial
        for event in events:
            self.fold(event)

    def fold(self, event: AnyEvent) -> None:
        """Update the trials with one event. Events must come in the ledger's order."""
        if isinstance(event, TrialStarted | EpochReported | TrialResumed | TrialLost | TrialEnded):
            self.reserve([event.trial])
        if isinstance(event, EpochReported | TrialEnded) and self._first:
            self._last = max(self._last, event.time)
        trial = self.by_number.get(getattr(event, "trial", -1))
        match event:
            case EpochReported() if trial:
                trial.reports.append(event)
            case TrialStarted():
                self.by_number[event.trial] = Trial(event.trial, event.recipe, event.params, event.origin, event.time)
                self._by_recipe.setdefault(event.recipe.training_key(self._images), event.trial)
            case TrialResumed() if trial:
                trial.state, trial.reason, trial.ended = "running", "", None
                trial.resumes += 1
            case TrialLost() if trial:
                trial.state, trial.reason = "interrupted", event.reason
                trial.crashes += event.cause == "worker"
                trial.preemptions += event.cause == "preemption"
            case TrialEnded() if trial:
                trial.state, trial.reason, trial.ended = event.state, event.reason, event.time
            case SweepStarted() if event.dataset:
                count = event.dataset.get("train_images")
                self._images = count if isinstance(count, int) else None
            case DriverStarted():
                if self._first:
                    self.interruptions.append((self._last, event.time))
                self._first, self._last = self._first or event.time, event.time
            case DataMoved():
                for moved in self.by_number.values():
                    moved.recipe = event.apply(moved.recipe)
                trials = reversed(self.by_number.values())
                self._by_recipe = {trial.recipe.training_key(self._images): trial.number for trial in trials}
            case Extension():
                self.extra += event.trials
            case TrialAdded():
                self.extra += 1

    @property
    def elapsed_seconds(self) -> float:
        """The time of all drivers until the last report or end of a trial."""
        return self._last - self._first - sum(end - start for start, end in self.interruptions)

    def figures(self) -> dict[str, float]:
        """Return the sweep's own metrics, as in MLflow: states, best trial and time."""
        count = self.count()
        figures: dict[str, float] = {f"trials_{state}": count.get(state, 0) for state in get_args(EndState)}
        if (best := self.best()) and best.score is not None:
            figures |= {f"best_{self.metric}": best.score, "best_trial": best.number}
        return figures | {"elapsed_seconds": self.elapsed_seconds}

    def __iter__(self):
        return iter(self.by_number.values())

    def __len__(self) -> int:
        return len(self.by_number)

    def find(self, recipe: Recipe) -> Trial | None:
        """Return the first trial with this recipe, or one that trains the same, its seed included."""
        return self.by_number.get(self._by_recipe.get(recipe.training_key(self._images), -1))

    def copies(self) -> set[int]:
        """Return the trials that repeat another one, seed included, so that their scores are no new evidence.

        Of trials with the same recipe the one that came furthest is no copy, the first of equal ones.
        """
        if len(self._by_recipe) == len(self):
            return set()
        kept: dict[str, Trial] = {}
        for trial in sorted(self, key=lambda trial: (-trial.epoch, trial.number)):
            kept.setdefault(trial.recipe.training_key(self._images), trial)
        return self.by_number.keys() - {trial.number for trial in kept.values()}

    def reserve(self, numbers: Iterable[int]) -> None:
        """Let no new trial have one of these numbers."""
        self._used = max(self._used, *numbers, -1)

    def next_number(self) -> int:
        """Return the number of a new trial: one more than any before, so that two never share a folder."""
        return self._used + 1

    def count(self) -> dict[State, int]:
        """Return the number of trials in each state, without empty states."""
        states = [trial.state for trial in self]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    @property
    def sign(self) -> int:
        """Multiply a score by this; higher is then better."""
        return 1 if self.metric in MAXIMISED else -1

    def ranked(self) -> list[Trial]:
        """Return the trials with a score: completed ones first, then by score.

        Of equal scores, as few validation images give them, the one with the lower loss is first, then the earlier one.
        """
        scored = [(trial, trial.score) for trial in self if trial.score is not None]
        scored.sort(key=lambda t: (t[0].state != "completed", -self.sign * t[1], t[0].kept_loss, t[0].number))
        return [trial for trial, _ in scored]

    def best(self) -> Trial | None:
        """Return the best completed trial; only a completed trial can be the best."""
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].state == "completed" else None
