"""What happens next in a sweep, decided from its ledger alone: the same code live, on resume and in a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from search.asha import Asha, Decision
from search.ledger import Event, Ledger
from search.sampler import Sampler
from search.trials import UNFINISHED, State, Trial, Trials
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, read_recipe

DRAWS = 200  # attempts at a recipe without conflicts


class Controller:
    """Folds every event into rungs, sampler and trials; writes an event before its decision takes effect."""

    def __init__(self, space: Space, ledger: Ledger, *, seed: int = 0) -> None:
        self.space = space
        self.ledger = ledger
        self.budget = space.search.trials
        self.trials = Trials(space.search.metric)
        self.asha = make_asha(space)
        self.sampler = Sampler(space.suggest, name=space.search.sampler, seed=seed)
        self.baselines = space.baselines()
        self.resolve: Callable[[Recipe], Recipe] = lambda recipe: recipe  # replaces `auto`, where that is known
        self.listeners: list[Callable[[Event], None]] = []
        self.decisions: dict[int, Decision] = {}  # of running trials
        for event in ledger.events:
            self._fold(event)

    def record(self, **event: Any) -> Event:
        """Append an event to the ledger and let everyone know."""
        event = self.ledger.append(event)
        self._fold(event)
        for listener in self.listeners:
            listener(event)
        return event

    def unfinished(self) -> list[Trial]:
        """Trials to go on with after a resume; one that was already told to stop is ended here."""
        for trial in list(self.trials):
            if trial.state == "running" and self.decisions.get(trial.number) is Decision.STOP:
                self.end(trial.number, "stopped")
            elif trial.state in ("running", "interrupted") and trial.epoch >= trial.epochs:
                self.end(trial.number, "completed")
        return [trial for trial in self.trials if trial.state in UNFINISHED]

    def propose(self) -> Trial | None:
        """Start the next trial; None when the budget or the grid is used up.

        Raises:
            UserError: no recipe without conflicts could be drawn.
        """
        number = len(self.trials)
        if number >= self.budget:
            return None
        if number < len(self.baselines):
            recipe = self.baselines[number]
            params = self.space.encode(recipe)
            return self._start(number, recipe, params, "baseline")
        for _ in range(DRAWS):
            asked = self.sampler.ask(number)
            if asked is None:
                return None
            params, values = asked
            try:
                return self._start(number, read_recipe(values), params, "sampler")
            except UserError as error:
                self.record(event="infeasible", trial=number, params=params, reason=str(error))
        raise UserError(f"{DRAWS} draws in a row had conflicting techniques. Take the conflict out of the space.")

    def report(self, number: int, report: dict[str, Any]) -> Decision:
        """An epoch arrived from a worker; one that came before changes nothing."""
        trial = self.trials.by_number[number]
        if report["epoch"] > trial.epoch:
            self.record(event="report", trial=number, **report)
            if trial.epoch >= trial.epochs:
                self.end(number, "completed")
            elif self.decisions[number] is Decision.STOP:
                self.end(number, "stopped")
        return self.decisions.get(number, Decision.STOP)

    def end(self, number: int, state: State, reason: str = "") -> None:
        """A trial ended, unless it had already."""
        if self.trials.by_number[number].state in UNFINISHED:
            self.record(event="end", trial=number, state=state, reason=reason)

    def _start(self, number: int, recipe: Recipe, params: dict[str, Any] | None, origin: str) -> Trial:
        self.record(event="start", trial=number, recipe=self.resolve(recipe).model_dump(), params=params, origin=origin)
        return self.trials.by_number[number]

    def _fold(self, event: Event) -> None:
        self.trials.fold(event)
        kind, number = event.get("event"), event.get("trial", -1)
        if kind == "infeasible":
            self.sampler.add(number, event["params"])
            self.sampler.tell(number, "infeasible")
            return
        trial = self.trials.by_number.get(number)
        if trial is None:
            return
        if kind == "start":
            self._fold_start(trial)
        elif kind == "resume":
            self._start_rungs(trial)
        elif kind == "report":
            score = self.trials.sign * event["score"]
            self.sampler.report(number, event["epoch"] / trial.epochs, score)
            self.decisions[number] = self.asha.report(number, event["epoch"], score) if self.asha else Decision.CONTINUE
        elif kind == "end":
            self.sampler.tell(number, event["state"])
            if self.asha:
                self.asha.end(number, event["state"])

    def _fold_start(self, trial: Trial) -> None:
        self.sampler.add(trial.number, trial.params)
        self._start_rungs(trial)

    def _start_rungs(self, trial: Trial) -> None:
        self.decisions[trial.number] = Decision.CONTINUE
        if self.asha:
            self.asha.start(trial.number, trial.epochs, protected=trial.origin == "baseline")


def make_asha(space: Space) -> Asha | None:
    """The scheduler that a space names; None where it names none."""
    settings = space.search.scheduler.model_dump()
    return Asha(**settings) if settings.pop("name") == "asha" else None
