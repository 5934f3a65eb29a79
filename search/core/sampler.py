"""TPE over known or forecast final scores, as a function of the ledger's events alone."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from search.core.early_scores import SHARES, forecast_finals, scores_at_shares
from search.core.tpe import Axis, Points, Proposal, grow
from spaces.parameters.domains import Scalar
from spaces.parameters.draws import GridTrial, OptunaTrial, Params, ShuffledTrial, draw_every

Values = Mapping[str, object]  # of a recipe, by field
Suggest = Callable[[OptunaTrial], Values]
Choose = Callable[[str, Axis], Scalar]
Read = TypeVar("Read")

PAST = 400  # trials that a proposal looks at
MOST_GOOD = 25  # the largest number of trials that count as good
_LOST = ("diverged", "failed", "out_of_memory", "infeasible")
_REDRAWS = 8  # a point that another trial already has is drawn again at most this often
_NUMBER, _IS_LOST, _END, _FIRST_SHARE = range(4)  # columns: the scores at SHARES are the last ones


class Drawing:
    """One draw from a space: `choose` gives each value that can vary; the axis of each parameter is put into `axes`."""

    def __init__(self, choose: Choose, axes: dict[str, Axis]) -> None:
        self.params: Params = {}
        self._choose, self._axes = choose, axes

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        return self._take(name, Axis(0, len(choices) - 1, tuple(choices)))

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return self._take(name, Axis(low, high, is_log=log))  # type: ignore[return-value]

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self._take(name, Axis(low, high, is_whole=True))  # type: ignore[return-value]

    def _take(self, name: str, axis: Axis) -> Scalar:
        self._axes[name] = axis
        self.params[name] = self._choose(name, axis) if axis.low < axis.high else axis.decode(axis.low)
        return self.params[name]


@dataclass
class _Fact:
    """What is known about one trial, or about one infeasible draw; the numbers are in a row of the sampler's table."""

    params: Params
    row: int
    scores: dict[float, float] = field(default_factory=dict)  # share of its own length -> best score so far


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
        self.suggest = suggest
        self.name = name
        self.seed = seed
        self.startup_trials = startup_trials
        self.is_used_up = False  # whether the last `ask` found no point
        self._facts: dict[int, _Fact] = {}
        self._infeasible: Counter[int] = Counter()  # draws of each trial
        self._points = Points()
        self._axes: dict[str, Axis] = {}  # of each parameter so far
        self._table = np.full((64, _FIRST_SHARE + len(SHARES)), np.nan)
        self._with_point: dict[frozenset, list[_Fact]] = {}
        self._copied: list[list[_Fact]] = []  # those of points that several trials have had
        self._grid: list[Params] = []
        if name == "grid":
            self._grid = [params for params, _ in draw_every(suggest, GridTrial())]
            random.Random(seed).shuffle(self._grid)  # so that a part of the grid is unbiased

    def ask(self, trial: int, read: Callable[[Values], Read | None]) -> tuple[Params, Read] | None:
        """Return the parameters of a new trial, and what `read` makes of the values that `suggest` drew with them.

        None if no point is left: all were tried, or refused, or `read` returned None, as a trial has their values.
        """
        if self.name != "grid":
            begin = self._prepare(trial)
            for _ in range(_REDRAWS):
                drawing = Drawing(begin(), self._axes)
                drawn = self.suggest(drawing)
                if not self._has(drawing.params) and (made := read(drawn)) is not None:
                    self._keep(trial, drawing.params)
                    return drawing.params, made
        shuffled = ShuffledTrial(self._seed_of(trial))
        for params in self._grid or (params for params, _ in draw_every(self.suggest, shuffled)):
            if not self._has(params) and (made := read(self._replay(params)[1])) is not None:
                self._keep(trial, params)
                return params, made
        self.is_used_up = True
        return None

    def add(self, trial: int, params: Params | None) -> None:
        """Record a trial that `ask` did not propose: a baseline, a warm start, a replay.

        `params` is None if the recipe lies outside the space.
        """
        if params is not None and trial not in self._facts:
            if not params.keys() <= self._axes.keys():  # a parameter has the same axis in each draw
                params, _ = self._replay(params)
            self._keep(trial, params)

    def report(self, trial: int, share: float, score: float) -> None:
        """Record the best score so far at a share of the trial's own length; higher is better."""
        if fact := self._facts.get(trial):
            fact.scores[share] = score
            self._table[fact.row, _FIRST_SHARE:] = scores_at_shares(fact.scores)

    def tell(self, trial: int, state: str) -> None:
        """Record that a trial ended. After an infeasible draw, `ask` again for the same trial."""
        if not (fact := self._facts.get(trial)):
            return
        row = self._table[fact.row]
        if state in _LOST:
            row[_IS_LOST], row[_FIRST_SHARE:] = True, np.nan
        elif state == "completed" and fact.scores:
            row[_END] = fact.scores[max(fact.scores)]
        if state == "infeasible":
            self._infeasible[trial] += 1
            self._with_point[frozenset(fact.params.items())].remove(fact)
            del self._facts[trial]

    def _has(self, params: Params) -> bool:
        return frozenset(params.items()) in self._with_point

    def _replay(self, params: Params) -> tuple[Params, Values]:
        drawing = Drawing(lambda name, axis: params[name], self._axes)
        values = self.suggest(drawing)
        return drawing.params, values

    def _keep(self, trial: int, params: Params) -> None:
        axes = {name: axis for name in params if (axis := self._axes[name]).low < axis.high}
        fact = _Fact(params, self._points.add(params, axes))
        self._table = grow(self._table, fact.row + 1)
        self._table[fact.row, :_FIRST_SHARE] = trial, False, np.nan
        self._facts[trial] = fact
        same = self._with_point.setdefault(frozenset(fact.params.items()), [])
        same.append(fact)
        if len(same) == 2:
            self._copied.append(same)

    def _seed_of(self, trial: int) -> int:
        seeds = np.random.SeedSequence((self.seed, trial, self._infeasible[trial]))
        return int(seeds.generate_state(1)[0])

    def _prepare(self, trial: int) -> Callable[[], Choose]:
        source = np.random.default_rng(self._seed_of(trial))
        good, others, known = self._split()
        if self.name == "random" or known < self.startup_trials:
            return lambda: lambda name, axis: axis.draw(source)
        return Proposal(self._points, good, others, source).begin

    def _split(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the rows of good trials and those of others, the oldest first, and the number of trials with a score.

        Of n trials the best √n/4 are good (as in hyperopt), at most 25, not n/10, because most early stopped trials are
        bad. Trials without a score are among the others, so that later draws avoid their points.
        """
        rows, scores = self._compare()
        is_open = np.isnan(scores)
        known = int((~is_open).sum())
        is_good = np.zeros(len(rows), dtype=bool)
        is_good[np.argsort(-scores, kind="stable")[: min(MOST_GOOD, math.ceil(math.sqrt(known) / 4))]] = True
        return rows[is_good], rows[_choose_past(is_good, is_open) & ~is_good], known

    def _compare(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each trial, the oldest first, and its score, which may be forecast.

        The score is NaN until a trial can be compared, and -inf for a lost one, which is worse than any other.
        """
        table = self._table[: self._points.count]
        rows = np.argsort(table[:, _NUMBER], kind="stable")
        rows = rows[~np.isin(rows, self._find_copies())]
        finals = forecast_finals(table[rows, _FIRST_SHARE:], table[rows, _END])
        return rows, np.where(table[rows, _IS_LOST] == 1, -np.inf, finals)

    def _find_copies(self) -> list[int]:
        """Return the rows of points that another trial has too, as two machines may add at one time; the longest counts."""
        copies = []
        for facts in filter(None, self._copied):
            longest = max(facts, key=lambda fact: len(fact.scores))
            copies += [fact.row for fact in facts if fact is not longest]
        return copies


def _choose_past(is_good: np.ndarray, is_open: np.ndarray) -> np.ndarray:
    """Return a mask of at most about PAST trials: with more of them a proposal takes longer, and is hardly another one.

    The good ones are all kept, and the latest of those without a result; of the rest every k-th one stands for its
    neighbours in time, whatever its score, so that the density of the others stays the same.
    """
    if len(is_good) <= PAST:
        return np.ones(len(is_good), dtype=bool)
    is_seen = is_good.copy()
    is_seen[np.flatnonzero(is_open)[-PAST // 4 :]] = True
    rest = np.flatnonzero(~is_seen)
    places = PAST - int(is_seen.sum())
    is_seen[rest[(np.arange(places) * len(rest) / places).astype(int)]] = True
    return is_seen
