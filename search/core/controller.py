"""What happens next in a sweep, decided from its ledger alone: the same code live, on resume and in a replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from search.core.asha import Asha, Decision
from search.core.ledger import Event, Ledger
from search.core.sampler import Sampler
from search.core.trials import UNFINISHED, State, Trial, Trials
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, flatten, read_recipe

DRAWS = 200  # attempts at a recipe without conflicts
RESTARTS = 3  # of a trial whose workers die


class Controller:
    """Folds every event into rungs, sampler and trials; writes an event before its decision takes effect."""

    def __init__(self, space: Space, ledger: Ledger, *, seed: int = 0) -> None:
        self.space = space
        self.ledger = ledger
        self.trials = Trials(space.search.metric)
        self.asha = make_asha(space)
        self.sampler = Sampler(space.suggest, name=space.search.sampler, seed=seed)
        self.baselines = space.baselines()
        self.warm_starts: list[dict[str, Any]] = []  # recipes of earlier sweeps
        self.listed: list[dict[str, Any]] = []  # of a sweep over a list: every trial, in order
        self.fatal = ""  # why the sweep cannot go on
        self.is_over = False  # the driver leaves: what workers report from now on waits in their checkpoints
        self.resolve: Callable[[Recipe], Recipe] = lambda recipe: recipe  # replaces `auto`, where that is known
        self.listeners: list[Callable[[Event], None]] = []
        self.decisions: dict[int, Decision] = {}  # of running trials
        for event in ledger.events:
            self._fold(event)

    def record(self, **event: Any) -> Event:
        """Append an event to the ledger and let everyone know.

        Raises:
            OSError: it could not be written, so it did not happen; `fatal` says so.
        """
        try:
            event = self.ledger.append(event)
        except OSError as error:
            self.fatal = f"{self.ledger.path}: {error.strerror}"
            raise
        self._spread(event)
        return event

    def _spread(self, event: Event) -> None:
        self._fold(event)
        for listener in self.listeners:
            listener(event)

    @property
    def budget(self) -> int:
        """Trials to run, baselines and extensions included."""
        return self.space.search.trials + self.trials.extra

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to run."""
        used_up = len(self.trials) >= self.budget or self.sampler.is_used_up
        return used_up and not any(trial.state in UNFINISHED for trial in self.trials)

    def take_over(self) -> None:
        """Settle what a driver that died left open: trials end as their last reports imply, or are interrupted."""
        for trial in list(self.trials):
            if trial.state in UNFINISHED and trial.epoch >= trial.epochs:
                self.end(trial.number, "completed")
            elif trial.state == "running":
                self._settle(trial.number)
            if trial.state == "running":
                self.end(trial.number, "interrupted", "the driver died")

    def interrupt(self, reason: str) -> None:
        """The driver leaves: what runs is interrupted, in the ledger first, and nothing else happens after that."""
        self.is_over = True
        for trial in list(self.trials):
            if trial.state != "running":
                continue
            end: Event = {"event": "end", "trial": trial.number, "state": "interrupted", "reason": reason}
            try:
                self.record(**end)
            except OSError:  # the next driver concludes the same from a ledger without this line
                self._spread({"time": time.time(), **end})

    def next_trial(self) -> Trial | None:
        """A trial to go on with, else a new one; None when neither is left, and then paused trials are over."""
        if self.is_over:
            return None
        waiting = next((trial for trial in self.trials if trial.state == "interrupted"), None)
        if waiting is None and self.asha and (promotable := self.asha.promotable()) is not None:
            waiting = self.trials.by_number[promotable]
        if waiting is not None:
            self.record(event="resume", trial=waiting.number)
            return waiting
        new = self.propose()
        if new is None:
            self._end_paused()
        return new

    def _end_paused(self) -> None:
        """With no trial left to run, nothing can lift a paused one among the best any more."""
        if any(trial.state == "running" for trial in self.trials):
            return
        for trial in self.trials:
            if trial.state == "paused":
                self.end(trial.number, "stopped")

    def propose(self) -> Trial | None:
        """Start the next trial; None when the budget or the grid is used up.

        Raises:
            UserError: no recipe without conflicts could be drawn.
        """
        if len(self.trials) >= self.budget:
            return None
        number = self.trials.next_number()
        if self.listed:
            entry = self.listed[number]
            return self._start(number, read_recipe(entry["recipe"]), None, entry["origin"])
        if number < len(self.baselines):
            recipe = self.baselines[number]
            params = self.space.encode(recipe)
            return self._start(number, recipe, params, "baseline")
        if (earlier := number - len(self.baselines)) < len(self.warm_starts):
            recipe = read_recipe(self.warm_starts[earlier])
            return self._start(number, recipe, self.space.encode(recipe), "warm_start")
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
        if self.is_over:
            return Decision.STOP
        if report["epoch"] > trial.epoch:
            self.record(event="report", trial=number, **report)
            if trial.epoch >= trial.epochs:
                self.end(number, "completed")
            else:
                self._settle(number)
        return self.decisions.get(number, Decision.STOP)

    def _settle(self, number: int) -> None:
        """Do what the rungs decided about a trial's last report."""
        if self.decisions.get(number) is Decision.STOP:
            self.end(number, "stopped")
        elif self.decisions.get(number) is Decision.PAUSE:
            self.end(number, "paused")

    def end(self, number: int, state: State, reason: str = "") -> None:
        """A trial ended, unless it had already."""
        if not self.is_over and self.trials.by_number[number].state in UNFINISHED:
            self.record(event="end", trial=number, state=state, reason=reason)

    def lose(self, number: int, reason: str) -> None:
        """A trial's worker died: it goes on elsewhere from its last checkpoint, a few times."""
        if self.is_over or self.trials.by_number[number].state not in UNFINISHED:
            return
        self.record(event="lost", trial=number, reason=reason)
        if self.trials.by_number[number].losses > RESTARTS:
            self.end(number, "failed", f"{RESTARTS + 1} workers died under it, the last because: {reason}")

    def _start(self, number: int, recipe: Recipe, params: dict[str, Any] | None, origin: str) -> Trial:
        self.record(event="start", trial=number, recipe=self.resolve(recipe).model_dump(), params=params, origin=origin)
        return self.trials.by_number[number]

    def _fold(self, event: Event) -> None:
        self.trials.fold(event)
        kind, number = event.get("event"), event.get("trial", -1)
        if kind == "warm_start":
            self.warm_starts = event["recipes"]
        if kind == "list":
            self.listed = event["trials"]
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
        scheduler = self.space.search.scheduler
        if self.asha and scheduler.name == "asha":
            group = flatten(trial.recipe).get(scheduler.group)
            self.asha.start(trial.number, trial.epochs, group, protected=trial.origin == "baseline")


def make_asha(space: Space) -> Asha | None:
    """The scheduler that a space names; None where it names none."""
    scheduler = space.search.scheduler
    return Asha(**scheduler.model_dump(exclude={"name", "group"})) if scheduler.name == "asha" else None
