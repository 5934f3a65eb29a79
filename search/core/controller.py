"""Decide the next step of a sweep from its ledger alone, with the same code live, on resume and in a replay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ledger.events import (
    REQUESTS,
    AnyEvent,
    AnyRequest,
    DataMoved,
    DrawRefused,
    EndState,
    EpochReported,
    LossCause,
    Origin,
    Replication,
    ReplicationTrial,
    StopRequested,
    TrialAdded,
    TrialEnded,
    TrialLost,
    TrialResumed,
    TrialStarted,
    WarmStart,
)
from ledger.file import Ledger
from ledger.trials import UNFINISHED, Trial, Trials
from search.core.asha import Asha, Decision
from search.core.pace import Pace
from search.core.sampler import Sampler, Values
from spaces.parameters.draws import Params
from spaces.space import Space
from training.errors import UserError
from training.loop.epoch_report import Report
from training.recipe import Recipe, read_recipe

TIMED_DRAWS = 20  # of them after which nothing starts any more, if the last would not end in time
DRAWS = 200  # attempts to draw a recipe without conflicts
RESTARTS = 3  # largest number of restarts of a trial whose workers die by themselves
STOPPED = "a user stopped it"
PREEMPTIONS = 100  # on a spot market they are ordinary; the limit ends a trial that takes its machine down each time

Listener = Callable[[AnyEvent], None]


class Controller:
    """Updates rungs, sampler and trials with every event; writes an event before its decision takes effect."""

    def __init__(
        self,
        space: Space,
        ledger: Ledger,
        *,
        seed: int = 0,
        resolve: Callable[[Recipe], Recipe] = lambda recipe: recipe,
        listeners: Iterable[Listener] = (),
        available: Space | None = None,
    ) -> None:
        """Fold the ledger's events.

        `resolve` replaces `auto` in a recipe by its value on these machines. `available` is the part of the space that they
        support, for a sweep that moved to other machines.
        """
        self.space = space
        self.ledger = ledger
        self.trials = Trials(space.search.metric)
        scheduler = space.search.scheduler
        self.asha = Asha(scheduler) if scheduler.name == "asha" else None
        self.sampler = Sampler(space.suggest, name=space.search.sampler, seed=seed)
        self.baselines = space.baselines()
        self.probe = space.probe()
        self.warm_starts: tuple[Recipe, ...] = ()  # recipes of earlier sweeps
        self.replication: tuple[ReplicationTrial, ...] = ()  # all trials in order, if the sweep is a replication
        self.added: list[TrialAdded] = []  # recipes of users that have not started
        self.full: set[int] = set()  # trials of users that ASHA does not stop
        self.to_stop: set[int] = set()  # trials that users stop
        self.requests: set[str] = set()  # ids of the requests that the ledger has
        self.fatal = ""  # the reason why the sweep cannot continue
        self.is_over = False  # True when the driver ends; later reports stay in the workers' checkpoints
        self.resolve = resolve
        self.listeners = list(listeners)
        self.available = available or space
        self.decisions: dict[int, Decision] = {}  # one for each running trial
        self.seconds_left: Callable[[], float] = lambda: math.inf  # for a new trial
        self.pace = Pace(self.trials)
        self.was_late = False  # whether a draw would not have ended in time; a resume may train it
        self.is_out_of_time = False  # whether nothing that was drawn would end in time
        for event in ledger.events:
            self._fold(event)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each event from now on."""
        self.listeners.append(listener)

    def record(self, event: AnyEvent) -> None:
        """Append an event to the ledger, then fold it and call the listeners.

        Raises:
            OSError: the event could not be written, so it has no effect; `fatal` has the reason.
        """
        try:
            self.ledger.append(event)
        except OSError as error:
            self.fatal = f"{self.ledger.path}: {error.strerror}"
            raise
        self._spread(event)

    def _spread(self, event: AnyEvent) -> None:
        self._fold(event)
        for listener in self.listeners:
            listener(event)

    @property
    def budget(self) -> int:
        """Number of trials to run, with baselines and extensions."""
        return self.space.search.trials + self.trials.extra

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to run."""
        is_used_up = self.sampler.is_used_up and not (self.added or self.was_late)
        nothing_runs = not any(trial.state in UNFINISHED for trial in self.trials)
        return nothing_runs and (is_used_up or len(self.trials) >= self.budget)

    def accept(self, event: AnyRequest) -> None:
        """Record a request of a user; one that the ledger has already, or that cannot be met, is ignored."""
        has_trial = not isinstance(event, StopRequested) or event.trial in self.trials.by_number
        can_grow = not (isinstance(event, TrialAdded) and self.replication)
        if event.request not in self.requests and has_trial and can_grow:
            self.record(event)

    def take_over(self) -> None:
        """End the trials that a dead driver left running: as their last reports imply, else as interrupted."""
        for trial in list(self.trials):
            if trial.state in UNFINISHED and trial.epoch >= trial.epochs:
                self.end(trial.number, "completed")
            elif trial.state == "running":
                self._apply_rungs(trial.number)
            if trial.state == "running":
                self.end(trial.number, "interrupted", "the driver died")

    def interrupt(self, reason: str) -> None:
        """End all running trials as interrupted, in the ledger first; nothing is accepted after that."""
        self.is_over = True
        for trial in list(self.trials):
            if trial.state != "running":
                continue
            end = TrialEnded(trial=trial.number, state="interrupted", reason=reason)
            try:
                self.record(end)
            except OSError:  # without this line the next driver comes to the same result
                self._spread(end)

    def next_trial(self) -> Trial | None:
        """Return a trial to resume, else a new one; None if there is neither."""
        if self.is_over:
            return None
        for number in self.to_stop:
            if self.trials.by_number[number].state == "interrupted":  # it has no worker
                self.end(number, "stopped", STOPPED)
        waiting = next((trial for trial in self.trials if trial.state == "interrupted"), None)
        if waiting is not None:
            self.record(TrialResumed(trial=waiting.number))
            return waiting
        return self.propose()

    def propose(self) -> Trial | None:
        """Start the next trial; None if the budget is used up, or each recipe of the space has its trial."""
        if len(self.trials) >= self.budget or self.is_out_of_time:
            return None
        if self.replication:  # its list gives each number its recipe, also where the start of a trial was lost
            number = next(each for each in range(self.budget) if each not in self.trials.by_number)
            entry = self.replication[number]
            return self._start(number, entry.recipe, None, entry.origin)
        number = self.trials.next_number()
        waiting: list[tuple[Recipe, Origin]] = [(self.probe, "probe")] if self.probe else []
        waiting += [(recipe, "baseline") for recipe in self.baselines]
        waiting += [(recipe, "warm_start") for recipe in self.warm_starts]
        done = len(waiting) <= number == len(self.trials)  # else the start of one of these may be lost
        waiting = [] if done else [entry for entry in waiting if not self._is_trained(entry[0])]
        waiting += [(added.recipe, "added") for added in self.added]
        if waiting:
            recipe, origin = waiting[0]
            return self._start(number, recipe, self.space.encode(recipe), origin)
        for attempt in range(DRAWS):
            asked: tuple[Params, Recipe | UserError] | None = self.sampler.ask(number, self._read_new)
            if asked is None:
                self.is_out_of_time = self.was_late
                return None
            params, drawn = asked
            try:
                if isinstance(drawn, UserError):
                    raise drawn
                if self.available is not self.space and self.available.encode(drawn) is None:
                    raise UserError("these machines do not support the recipe")
                left = self.seconds_left()
                if left == math.inf or (self.pace.predict(drawn) or 0.0) <= left:
                    return self._start(number, drawn, params, "sampler")
            except UserError as error:
                self.record(DrawRefused(trial=number, params=params, reason=str(error)))
                continue
            self.was_late = True
            self.sampler.tell(number, "infeasible")  # not in the ledger: another driver has its own time
            if attempt + 1 >= TIMED_DRAWS:
                self.is_out_of_time = True
                return None
        raise UserError(
            f"{DRAWS} draws in a row had conflicting techniques, or options that these machines do not support. Remove them "
            "from the space."
        )

    def _is_trained(self, recipe: Recipe) -> bool:
        return self.trials.find(self.resolve(recipe)) is not None

    def _read_new(self, values: Values) -> Recipe | UserError | None:
        """Return the recipe of a draw, or why it is none; None if a trial has it, as it would only repeat its scores."""
        try:
            recipe = read_recipe(values)
        except UserError as error:
            return error
        return None if self._is_trained(recipe) else recipe

    def report(self, number: int, report: Report, worker_seconds: float | None = None, host: str = "") -> Decision:
        """Record an epoch of a worker, and decide whether its trial continues; a repeated epoch is ignored."""
        trial = self.trials.by_number[number]
        if self.is_over or trial.state not in UNFINISHED:
            return Decision.STOP
        if report.epoch > trial.epoch:
            self.record(EpochReported(trial=number, worker_seconds=worker_seconds, host=host, **vars(report)))
            if trial.epoch >= trial.epochs:
                self.end(number, "completed")
            elif number in self.to_stop:
                self.end(number, "stopped", STOPPED)
            else:
                self._apply_rungs(number)
        if trial.state == "stopped":
            return Decision.STOP
        return self.decisions.get(number, Decision.STOP)

    def _apply_rungs(self, number: int) -> None:
        if self.decisions.get(number) is Decision.STOP:
            self.end(number, "stopped")

    def end(self, number: int, state: EndState, reason: str = "") -> None:
        """Record the end of a trial, unless it had ended already."""
        if not self.is_over and self.trials.by_number[number].state in UNFINISHED:
            self.record(TrialEnded(trial=number, state=state, reason=reason))

    def lose(self, number: int, reason: str, cause: LossCause = "worker") -> None:
        """Record that a trial lost its worker. The trial is restarted from its last checkpoint, up to a limit."""
        trial = self.trials.by_number[number]
        if self.is_over or trial.state not in UNFINISHED:
            return
        self.record(TrialLost(trial=number, reason=reason, cause=cause))
        if trial.crashes > RESTARTS:
            self.end(number, "failed", f"{trial.crashes} of its workers died, the last because: {reason}")
        elif trial.preemptions > PREEMPTIONS:
            self.end(number, "failed", f"{trial.preemptions} of its machines were lost, the last because: {reason}")

    def _start(self, number: int, recipe: Recipe, params: Params | None, origin: Origin) -> Trial:
        self.record(TrialStarted(trial=number, recipe=self.resolve(recipe), params=params, origin=origin))
        return self.trials.by_number[number]

    def _fold(self, event: AnyEvent) -> None:
        self.trials.fold(event)
        if isinstance(event, REQUESTS):
            self.requests.add(event.request)
        known = self.trials.by_number
        match event:
            case WarmStart():
                self.warm_starts = event.recipes
            case Replication():
                self.replication = event.trials
            case TrialAdded():
                self.added.append(event)
            case DataMoved():
                self._move_recipes(event)
            case StopRequested() if event.trial in known:
                self.to_stop.add(event.trial)
            case DrawRefused():
                self.sampler.add(event.trial, event.params)
                self.sampler.tell(event.trial, "infeasible")
            case TrialStarted() | TrialResumed() | EpochReported() | TrialEnded() if event.trial in known:
                self._fold_trial(event, known[event.trial])

    def _move_recipes(self, event: DataMoved) -> None:
        """Change the recipes that have not started. `space` has the new place already."""
        self.warm_starts = tuple(map(event.apply, self.warm_starts))
        self.added = [added.model_copy(update={"recipe": event.apply(added.recipe)}) for added in self.added]
        self.replication = tuple(
            entry.model_copy(update={"recipe": event.apply(entry.recipe)}) for entry in self.replication
        )

    def _fold_trial(self, event: TrialStarted | TrialResumed | EpochReported | TrialEnded, trial: Trial) -> None:
        number = trial.number
        match event:
            case TrialStarted():
                if trial.origin == "added":
                    self.full |= {number for added in self.added[:1] if added.full}
                    del self.added[:1]  # they start in their order
                self.sampler.add(number, trial.params)
                self._start_rungs(trial)
            case TrialResumed():
                self._start_rungs(trial)
            case EpochReported():
                score = self.trials.sign * event.score
                self.sampler.report(number, event.epoch / trial.epochs, score)
                if self.asha:
                    self.decisions[number] = self.asha.report(number, event.epoch, score)
            case TrialEnded():
                self.sampler.tell(number, event.state)
                if self.asha:
                    self.asha.end(number, event.state)

    def _start_rungs(self, trial: Trial) -> None:
        self.decisions[trial.number] = Decision.CONTINUE
        scheduler = self.space.search.scheduler
        if self.asha and scheduler.name == "asha":
            name, _, field = scheduler.group.partition(".")
            part = getattr(trial.recipe, name, None)
            group = getattr(part, field, None) if field else part
            is_protected = trial.origin in ("probe", "baseline") or trial.number in self.full
            self.asha.start(
                trial.number, trial.epochs, group, is_protected, (self.trials.find(trial.recipe) or trial).number
            )
