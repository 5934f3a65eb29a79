"""TPE over trials of unequal fidelity (Bergstra et al. 2011), each ask a pure function of the ledger's events."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FixedTrial, FrozenTrial, TrialState, create_trial

Suggest = Callable[[optuna.Trial], Any]

# Optuna ranks trials by step, an integer: shares of a trial's own length in thousandths.
_STEPS = 1000
_LOST = ("diverged", "failed", "out_of_memory", "infeasible")


@dataclass
class _Fact:
    """What the events so far say about one trial, or about one infeasible draw."""

    params: dict[str, Any]
    distributions: dict[str, BaseDistribution]
    state: str = "running"
    scores: dict[int, float] = field(default_factory=dict)  # step -> score


class Sampler:
    """Names the next point; knows nothing but what `add`, `ask`, `report` and `tell` brought, in ledger order."""

    def __init__(
        self,
        suggest: Suggest,
        *,
        name: Literal["tpe", "random", "grid"] = "tpe",
        seed: int = 0,
        startup_trials: int = 10,
    ) -> None:
        self.suggest = suggest
        self.name = name
        self.seed = seed
        self.startup_trials = startup_trials
        self._facts: dict[int, _Fact] = {}
        self._infeasible: list[tuple[int, _Fact]] = []
        self._grid = list(enumerate_points(suggest, seed)) if name == "grid" else []

    def ask(self, trial: int) -> tuple[dict[str, Any], Any] | None:
        """Parameters of trial number `trial` and what `suggest` made of them; None when a grid is used up."""
        if self.name == "grid":
            return self._ask_grid(trial)
        study = self._build_study(self._derive_seed(trial))
        asked = study.ask()
        drawn = self.suggest(asked)
        self._facts[trial] = _Fact(asked.params, asked.distributions)
        return asked.params, drawn

    def add(self, trial: int, params: dict[str, Any] | None) -> None:
        """A trial that starts without being asked for: a baseline, a warm start, a replay. None: outside the domain."""
        if params is None:
            return
        fixed = FixedTrial(params)
        self.suggest(fixed)  # type: ignore[arg-type]  # FixedTrial draws like a Trial
        self._facts.setdefault(trial, _Fact(fixed.params, fixed.distributions))

    def report(self, trial: int, share: float, score: float) -> None:
        """The best score so far, higher is better, at a share of the trial's own length."""
        if trial in self._facts and not np.isnan(score):
            self._facts[trial].scores[round(share * _STEPS)] = score

    def tell(self, trial: int, state: str) -> None:
        """A trial ended. An infeasible draw frees its number: ask again for the same trial."""
        if trial not in self._facts:
            return
        self._facts[trial].state = state
        if state == "infeasible":
            self._infeasible.append((trial, self._facts.pop(trial)))

    def _derive_seed(self, trial: int) -> int:
        attempt = sum(number == trial for number, _ in self._infeasible)
        return int(np.random.SeedSequence((self.seed, trial, attempt)).generate_state(1)[0])

    def _ask_grid(self, trial: int) -> tuple[dict[str, Any], Any] | None:
        used = [fact.params for fact in self._facts.values()] + [fact.params for _, fact in self._infeasible]
        for params in self._grid:
            if params not in used:
                fixed = FixedTrial(params)
                drawn = self.suggest(fixed)  # type: ignore[arg-type]
                self._facts[trial] = _Fact(fixed.params, fixed.distributions)
                return params, drawn
        return None

    def _build_study(self, seed: int) -> optuna.Study:
        if self.name == "random":
            return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        # group: holes inside a branch are modelled jointly; constant_liar (Optuna's default) keeps running trials apart.
        sampler = optuna.samplers.TPESampler(seed=seed, group=True, n_startup_trials=self.startup_trials)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        facts = [fact for _, fact in self._infeasible] + [self._facts[n] for n in sorted(self._facts)]
        study.add_trials([frozen for fact in facts if (frozen := _freeze(fact)) is not None])
        return study


def _freeze(fact: _Fact) -> FrozenTrial | None:
    """A fact in Optuna's words, such that TPE ranks completed above stopped above lost."""
    common = {"params": fact.params, "distributions": fact.distributions}
    if fact.state == "completed" and fact.scores:
        return create_trial(state=TrialState.COMPLETE, value=fact.scores[max(fact.scores)], **common)
    if fact.state == "stopped":
        return create_trial(state=TrialState.PRUNED, intermediate_values=fact.scores, **common)
    if fact.state in _LOST:
        # PRUNED without values is the only state that TPE ranks below every other, COMPLETE(-inf) included.
        return create_trial(state=TrialState.PRUNED, **common)
    if fact.state == "interrupted":
        return None
    return create_trial(state=TrialState.RUNNING, **common)


class _Prefix:
    """Draws like a trial, taking choices from a prefix and the first option after it: one step of an odometer."""

    def __init__(self, prefix: list[int]) -> None:
        self.prefix = prefix
        self.taken: list[tuple[int, int]] = []  # index taken, number of options
        self.params: dict[str, Any] = {}

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        depth = len(self.taken)
        index = self.prefix[depth] if depth < len(self.prefix) else 0
        self.taken.append((index, len(choices)))
        self.params[name] = choices[index]
        return choices[index]

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        return self.suggest_categorical(name, range(low, high + 1, step))

    def suggest_float(self, name: str, low: float, high: float, **_: Any) -> float:
        raise ValueError(
            f"sampler=grid cannot enumerate {name}, which is continuous from {low} to {high}: "
            "give it a choice of values, or search with tpe or random."
        )


def enumerate_points(suggest: Suggest, seed: int) -> Iterator[dict[str, Any]]:
    """Every point of a finite define-by-run space, in an order shuffled by the seed, so that a part of it is fair."""
    points, prefix = [], []
    for _ in itertools.count():
        trial = _Prefix(prefix)
        suggest(trial)  # type: ignore[arg-type]
        points.append(trial.params)
        taken = trial.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            break
        prefix = [index for index, _ in taken]
        prefix[-1] += 1
    random.Random(seed).shuffle(points)
    yield from points
