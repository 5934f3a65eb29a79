"""TPE (Bergstra et al. 2011) over known or forecast final scores, as a function of the ledger's events alone."""

import copy
import math
import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.sampler import hyperopt_default_gamma
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from search.core.early_scores import forecast_finals, scores_at_shares
from spaces.parameters.draws import GridTrial, OptunaTrial, Params, ShuffledTrial, draw_every

Values = Mapping[str, object]  # of a recipe, by field
Suggest = Callable[[OptunaTrial], Values]

_STEPS = 1000  # Optuna's steps are whole numbers, so a share of a trial's own length is given in thousandths.
_LOST = ("diverged", "failed", "out_of_memory", "infeasible")
_NEVER = datetime(1970, 1, 1)
PAST = 400  # trials that a proposal looks at
MOST_GOOD = 25  # the largest number of trials that TPE counts as good
_REDRAWS = 8  # a point that another trial already has is drawn again at most this often


@dataclass
class _Fact:
    """The facts about one trial, or about one infeasible draw, after the events so far."""

    params: Params
    distributions: dict[str, BaseDistribution]
    state: str = "running"
    scores: dict[float, float] = field(default_factory=dict)  # share of its own length -> best score so far
    row: list[float] = field(default_factory=list)  # the scores at the shares that the forecast compares

    def add_score(self, share: float, score: float) -> None:
        self.scores[share] = score
        self.row = scores_at_shares(self.scores)

    @property
    def end(self) -> float:
        """The final score; NaN if the trial did not run to its end."""
        return self.scores[max(self.scores)] if self.state == "completed" else math.nan


class Sampler:
    """Proposes the next point. It depends only on the calls of `ask`, `add`, `report` and `tell`, in ledger order."""

    def __init__(
        self,
        suggest: Suggest,
        *,
        name: Literal["tpe", "random", "grid"] = "tpe",
        seed: int = 0,
        startup_trials: int = 10,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it logs every study that is created in memory
        self.suggest = suggest
        self.name = name
        self.seed = seed
        self.startup_trials = startup_trials
        self._facts: dict[int, _Fact] = {}
        self._infeasible: list[tuple[int, _Fact]] = []
        self._grid: list[Params] = []
        self.is_used_up = False  # whether the last `ask` found no point
        if name == "grid":
            self._grid = [params for params, _ in draw_every(suggest, GridTrial())]
            random.Random(seed).shuffle(self._grid)  # so that a part of the grid is unbiased

    def ask(self, trial: int, is_copy: Callable[[Values], bool] = lambda drawn: False) -> tuple[Params, Values] | None:
        """Return the parameters of a new trial and the values that `suggest` drew with them.

        None if no point is left: all were tried, or refused, or `is_copy` says of their values that a trial has them.
        """
        seen = [fact.params for fact in self._facts.values()] + [fact.params for _, fact in self._infeasible]
        if self.name != "grid":
            study = self._build_study(trial)
            for _ in range(_REDRAWS):
                asked = study.ask()
                drawn = self.suggest(asked)
                if asked.params not in seen and not is_copy(drawn):
                    self._facts[trial] = _Fact(asked.params, asked.distributions)
                    return asked.params, drawn
        shuffled = ShuffledTrial(self._seed_of(trial))
        for params in self._grid or (params for params, _ in draw_every(self.suggest, shuffled)):
            if params not in seen and not is_copy(drawn := self.suggest(FixedTrial(params))):
                self.add(trial, params)
                return params, drawn
        self.is_used_up = True
        return None

    def add(self, trial: int, params: Params | None) -> None:
        """Record a trial that `ask` did not propose: a baseline, a warm start, a replay.

        `params` is None if the recipe lies outside the space.
        """
        if params is None or trial in self._facts:
            return
        fixed = FixedTrial(params)
        self.suggest(fixed)
        self._facts[trial] = _Fact(fixed.params, fixed.distributions)

    def report(self, trial: int, share: float, score: float) -> None:
        """Record the best score so far at a share of the trial's own length; higher is better."""
        if trial in self._facts:
            self._facts[trial].add_score(share, score)

    def tell(self, trial: int, state: str) -> None:
        """Record that a trial ended. After an infeasible draw, `ask` again for the same trial."""
        if trial not in self._facts:
            return
        self._facts[trial].state = state
        if state == "infeasible":
            self._infeasible.append((trial, self._facts.pop(trial)))

    def _seed_of(self, trial: int) -> int:
        attempt = sum(number == trial for number, _ in self._infeasible)
        return int(np.random.SeedSequence((self.seed, trial, attempt)).generate_state(1)[0])

    def _build_study(self, trial: int) -> optuna.Study:
        seed = self._seed_of(trial)
        if self.name == "random":
            return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        tpe = _make_tpe(seed, self.startup_trials, len(self._facts) + len(self._infeasible))
        study = optuna.create_study(sampler=tpe, direction="maximize")
        study.add_trials(self._freeze())
        return study

    def _freeze(self) -> list[FrozenTrial]:
        """Return the facts as Optuna's trials. A trial counts as soon as it can be compared, with its forecast score.

        Optuna itself would rank every completed trial above every stopped one, even a worse one, and would avoid points
        near a running trial, even a good one.
        """
        facts = _keep_different([self._facts[number] for number in sorted(self._facts)])
        facts = [fact for _, fact in self._infeasible] + facts
        known = [fact for fact in facts if fact.scores and fact.state not in _LOST]
        finals = forecast_finals([fact.row for fact in known], [fact.end for fact in known])
        values = {id(fact): value for fact, value in zip(known, finals, strict=True) if value is not None}
        chosen = _choose_past(facts, lambda fact: values.get(id(fact)))
        return [_freeze_fact(fact, values.get(id(fact))) for fact in chosen]


def _keep_different(facts: list[_Fact]) -> list[_Fact]:
    """Return the facts without copies of a point, as two machines may add at one time; the longest one stays."""
    longest: dict[frozenset, _Fact] = {}
    for fact in facts:
        point = frozenset(fact.params.items())
        if point not in longest or len(fact.scores) > len(longest[point].scores):
            longest[point] = fact
    return list(longest.values())


def _choose_past(facts: list[_Fact], value_of: Callable[[_Fact], float | None]) -> list[_Fact]:
    """Return at most about PAST facts, in their order: TPE's time grows with their number, its answer hardly changes.

    TPE splits the trials into the best, √n/4 of them and at most 25, and the others. The best are all kept, and the trials
    that have not reported yet; of the others every k-th one stands for its neighbours in time, whatever its score, so that
    the density of the others stays the same.
    """
    if len(facts) <= PAST:
        return facts
    ranked = sorted((fact for fact in facts if value_of(fact) is not None), key=value_of, reverse=True)  # type: ignore[arg-type]
    running = [fact for fact in facts if fact.state not in _LOST and value_of(fact) is None]
    kept = {id(fact) for fact in [*ranked[:MOST_GOOD], *running[-PAST // 4 :]]}
    others = [fact for fact in facts if id(fact) not in kept]
    step = len(others) / (PAST - len(kept))
    kept |= {id(others[int(position * step)]) for position in range(PAST - len(kept))}
    return [fact for fact in facts if id(fact) in kept]


def _make_tpe(seed: int, startup_trials: int, trials: int) -> optuna.samplers.TPESampler:
    """Return the sampler for a past of `trials` facts, of which it may get only a part."""
    with warnings.catch_warnings():
        # group is experimental and gamma is deprecated, but measurements show the need for both.
        warnings.simplefilter("ignore")
        return optuna.samplers.TPESampler(
            seed=seed,
            n_startup_trials=startup_trials,
            group=True,  # search parameters inside a branch are modelled jointly
            constant_liar=True,  # later draws avoid points of trials that have not reported yet
            # √n/4 good trials instead of n/10, because most early stopped trials are bad; n is that of the whole past.
            gamma=lambda known: hyperopt_default_gamma(known + max(0, trials - PAST)),
        )


class _SharedTrial(FrozenTrial):
    """A trial for a study that exists during one `ask`, so Optuna need not copy it, which is ten times as fast."""

    def __deepcopy__(self, memo: object) -> "_SharedTrial":
        return copy.copy(self)


def _freeze_fact(fact: _Fact, value: float | None) -> FrozenTrial:
    lost = fact.state in _LOST
    state = TrialState.RUNNING if value is None else TrialState.COMPLETE
    if lost:
        state = TrialState.PRUNED  # without values: TPE ranks it below every other state, also below COMPLETE(-inf)
    return _SharedTrial(
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
