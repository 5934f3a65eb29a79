"""TPE (Bergstra et al. 2011) over the final scores that trials promise, as a function of the ledger's events alone."""

import copy
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.sampler import hyperopt_default_gamma
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from search.core.forecast import forecast_finals
from spaces.parameters.draws import GridTrial, Params

Suggest = Callable[[optuna.Trial], Any]

_STEPS = 1000  # Optuna's steps are whole numbers: a share of a trial's own length is told in thousandths.
_LOST = ("diverged", "failed", "out_of_memory", "infeasible")
_NEVER = datetime(1970, 1, 1)
_REDRAWS = 8  # of a point that another trial already holds, before it is taken as it is


@dataclass
class _Fact:
    """What the events so far say about one trial, or about one infeasible draw."""

    params: Params
    distributions: dict[str, BaseDistribution]
    state: str = "running"
    scores: dict[float, float] = field(default_factory=dict)  # share of its own length -> best score so far


class Sampler:
    """Names the next point; knows nothing but what `ask`, `add`, `report` and `tell` brought, in ledger order."""

    def __init__(
        self,
        suggest: Suggest,
        *,
        name: Literal["tpe", "random", "grid"] = "tpe",
        seed: int = 0,
        startup_trials: int = 10,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it tells of every study it makes in memory
        self.suggest = suggest
        self.name = name
        self.seed = seed
        self.startup_trials = startup_trials
        self._facts: dict[int, _Fact] = {}
        self._infeasible: list[tuple[int, _Fact]] = []
        self._grid = enumerate_points(suggest, seed) if name == "grid" else []

    def ask(self, trial: int) -> tuple[Params, Any] | None:
        """Parameters of trial number `trial` and what `suggest` made of them; None when a grid is used up."""
        if self.name == "grid":
            return self._ask_grid(trial)
        study = self._build_study(trial)
        for _ in range(_REDRAWS):
            asked = study.ask()
            drawn = self.suggest(asked)
            if asked.params not in self._seen():
                break
        self._facts[trial] = _Fact(asked.params, asked.distributions)
        return asked.params, drawn

    def add(self, trial: int, params: Params | None) -> None:
        """A trial that starts without being asked for: a baseline, a warm start, a replay. None: outside the domain."""
        if params is None or trial in self._facts:
            return
        fixed = FixedTrial(params)
        self.suggest(fixed)  # type: ignore[arg-type]  # draws like a Trial
        self._facts[trial] = _Fact(fixed.params, fixed.distributions)

    def report(self, trial: int, share: float, score: float) -> None:
        """The best score so far, higher is better, at a share of the trial's own length."""
        if trial in self._facts and not np.isnan(score):
            self._facts[trial].scores[share] = score

    def tell(self, trial: int, state: str) -> None:
        """A trial ended. An infeasible draw frees its number: ask again for the same trial."""
        if trial not in self._facts:
            return
        self._facts[trial].state = state
        if state == "infeasible":
            self._infeasible.append((trial, self._facts.pop(trial)))

    def _seen(self) -> list[Params]:
        return [fact.params for fact in self._facts.values()] + [fact.params for _, fact in self._infeasible]

    @property
    def is_used_up(self) -> bool:
        """Whether every point of a grid is taken, be it by a baseline, or refused."""
        return self.name == "grid" and self._next_point() is None

    def _next_point(self) -> Params | None:
        seen = self._seen()
        return next((params for params in self._grid if params not in seen), None)

    def _ask_grid(self, trial: int) -> tuple[Params, Any] | None:
        params = self._next_point()
        if params is None:
            return None
        self.add(trial, params)
        return params, self.suggest(FixedTrial(params))  # type: ignore[arg-type]

    def _build_study(self, trial: int) -> optuna.Study:
        attempt = sum(number == trial for number, _ in self._infeasible)
        seed = int(np.random.SeedSequence((self.seed, trial, attempt)).generate_state(1)[0])
        if self.name == "random":
            return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        study = optuna.create_study(sampler=_make_tpe(seed, self.startup_trials), direction="maximize")
        study.add_trials(self._freeze())
        return study

    def _freeze(self) -> list[FrozenTrial]:
        """The facts in Optuna's words. A trial counts once it can be compared, and is ranked by its promise.

        Optuna would rank every completed trial above every stopped one, by luck or not, and would keep away from
        where a running trial does well.
        """
        facts = [fact for _, fact in self._infeasible] + [self._facts[number] for number in sorted(self._facts)]
        known = [fact for fact in facts if fact.scores and fact.state not in _LOST]
        finals = forecast_finals([fact.scores for fact in known], [fact.state == "completed" for fact in known])
        values = {id(fact): value for fact, value in zip(known, finals, strict=True) if value is not None}
        return [_freeze_fact(fact, values.get(id(fact))) for fact in facts]


def _make_tpe(seed: int, startup_trials: int) -> optuna.samplers.TPESampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # group is called experimental, gamma old; both are measured to be needed
        return optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=startup_trials,
            group=True,  # holes inside a branch are modelled jointly
            constant_liar=True,  # trials that have not reported yet keep later ones away
            gamma=hyperopt_default_gamma,  # √n/4 good trials instead of n/10: most early stopped trials are poor
        )


class _Told(FrozenTrial):
    """A trial as told to a study that lives for one ask: Optuna may keep it as it is, which is ten times as fast."""

    def __deepcopy__(self, memo: object) -> "_Told":
        return copy.copy(self)


def _freeze_fact(fact: _Fact, value: float | None) -> FrozenTrial:
    state = TrialState.RUNNING if value is None else TrialState.COMPLETE
    if fact.state in _LOST:
        state = TrialState.PRUNED  # without values: what TPE ranks below every other, COMPLETE(-inf) included
    lost = fact.state in _LOST
    return _Told(
        number=0,
        trial_id=0,
        state=state,
        value=None if lost else value,
        intermediate_values={} if lost else {round(share * _STEPS): score for share, score in fact.scores.items()},
        params=fact.params,
        distributions=fact.distributions,
        datetime_start=_NEVER,
        datetime_complete=None if state is TrialState.RUNNING else _NEVER,
        user_attrs={},
        system_attrs={},
    )


def enumerate_points(suggest: Suggest, seed: int) -> list[Params]:
    """Every point of a finite define-by-run space, in an order shuffled by the seed, so that a part of it is fair.

    Raises:
        UserError: a domain is continuous.
    """
    points: list[Params] = []
    trial, is_left = GridTrial(), True
    while is_left:
        suggest(trial)  # type: ignore[arg-type]  # draws like Optuna's trial
        points.append(trial.params)
        is_left = trial.advance()
    random.Random(seed).shuffle(points)
    return points
