"""The trials of a sweep: a projection of its ledger, folded event by event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from analysis.effects.selection import Candidate, judge_best
from search.storage.events import (
    AnyEvent,
    EpochReported,
    Extension,
    Origin,
    State,
    TrialEnded,
    TrialLost,
    TrialResumed,
    TrialStarted,
)
from training.recipe import Recipe
from training.score_metrics import MAXIMISED

UNFINISHED: tuple[State, ...] = ("running", "paused", "interrupted")


@dataclass
class Trial:
    """One recipe trained under the scheduler. `number` names it everywhere; `reports` are its epochs in order."""

    number: int
    recipe: Recipe
    params: dict[str, Any] | None
    origin: Origin
    started: float
    state: State = "running"
    reason: str = ""
    ended: float | None = None
    reports: list[EpochReported] = field(default_factory=list)
    losses: int = 0  # workers that died under it

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
        """The best validation value so far."""
        return self.reports[-1].score if self.reports else None

    @property
    def standard_error(self) -> float:
        return self.reports[-1].standard_error


class Trials:
    """All trials of a ledger, and which of them is the best."""

    def __init__(self, metric: str, events: Iterable[AnyEvent] = ()) -> None:
        self.metric = metric
        self.by_number: dict[int, Trial] = {}
        self.extra = 0  # trials granted after the start
        for event in events:
            self.fold(event)

    def fold(self, event: AnyEvent) -> None:
        """Take in one event of the ledger; call it in the ledger's order."""
        if isinstance(event, TrialStarted):
            self.by_number[event.trial] = Trial(event.trial, event.recipe, event.params, event.origin, event.time)
            return
        if isinstance(event, Extension):
            self.extra += event.trials
        trial = self.by_number.get(getattr(event, "trial", -1))
        if trial is None:
            return
        if isinstance(event, EpochReported):
            trial.reports.append(event)
        elif isinstance(event, TrialResumed):
            trial.state, trial.reason, trial.ended = "running", "", None
        elif isinstance(event, TrialLost):
            trial.state, trial.reason, trial.losses = "interrupted", event.reason, trial.losses + 1
        elif isinstance(event, TrialEnded):
            trial.state, trial.reason, trial.ended = event.state, event.reason, event.time

    def __iter__(self):
        return iter(self.by_number.values())

    def __len__(self) -> int:
        return len(self.by_number)

    def next_number(self) -> int:
        """The number of a new trial: a repaired ledger may have lost the start of one, whose number is free again."""
        if (count := len(self)) not in self.by_number:
            return count
        return min(set(range(count)) - self.by_number.keys())

    def count(self) -> dict[State, int]:
        """How many trials are in each state that any is in."""
        states = [trial.state for trial in self]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    @property
    def sign(self) -> int:
        """Multiply a score by this; higher is then better."""
        return 1 if self.metric in MAXIMISED else -1

    def ranked(self) -> list[Trial]:
        """Trials with a score, completed ones first, best first; of equals the earlier."""
        scored = [trial for trial in self if trial.score is not None]
        return sorted(scored, key=lambda t: (t.state != "completed", -self.sign * t.score, t.number))  # type: ignore[operator]

    def best(self) -> Trial | None:
        """The best completed trial; no other may be called so."""
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].state == "completed" else None

    def tied_with_best(self) -> list[Trial]:
        """Completed trials that may be the best on the same validation images at 95 %, the best included."""
        completed = [trial for trial in self.ranked() if trial.state == "completed"]
        if not completed:
            return []
        candidates = [Candidate(trial.name, trial.score or 0.0, trial.standard_error) for trial in completed]
        tied = {candidate.name for candidate in judge_best(candidates).tied}
        return [trial for trial in completed if trial.name in tied]
