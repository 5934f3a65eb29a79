"""One draw from a space, define-by-run: a parameter inside an option is drawn only when that option is taken."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Scalar, Tree, Uniform
from training.errors import UserError

Params = dict[str, Scalar]  # the value of each Optuna parameter, by its name
T = TypeVar("T")


class OptunaTrial(Protocol):
    """The part of `optuna.Trial` that a draw needs."""

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar: ...
    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...
    def suggest_int(self, name: str, low: int, high: int) -> int: ...


def draw(tree: Tree, trial: OptunaTrial, name: str = "") -> Tree:
    """Draw plain values from a tree.

    Args:
        tree: Values and domains.
        trial: Suggests a value for each search parameter.
        name: The name of the tree as a parameter. A name contains the options taken: `optimizer[adamw].lr`.
    """
    match tree:
        case dict():
            return {key: draw(value, trial, join(name, key)) for key, value in tree.items()}
        case Choice():
            position = tree.keys.index(trial.suggest_categorical(name, tree.keys))
            return draw(tree.options[position], trial, f"{name}[{tree.labels[position]}]")
        case Uniform():
            return trial.suggest_float(name, tree.low, tree.high)
        case LogUniform():
            return trial.suggest_float(name, tree.low, tree.high, log=True)
        case IntUniform():
            return trial.suggest_int(name, tree.low, tree.high)
        case _:
            return tree


def join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


class RandomTrial:
    """Draws without Optuna, whose import takes longer than hundreds of draws."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        return self.random.choice(choices)

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        if log:
            # exp(log(high)) can be slightly above high because of rounding.
            return min(max(math.exp(self.random.uniform(math.log(low), math.log(high))), low), high)
        return self.random.uniform(low, high)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self.random.randint(low, high)


class EveryTrial:
    """Draws each combination of options and whole numbers once; the parameter drawn last changes fastest.

    Each draw restarts with `advance`, which returns False after the last combination. A continuous domain gives its
    low end. `params` holds what the current draw took of choices and whole numbers.
    """

    def __init__(self) -> None:
        self.params: Params = {}
        self._taken: list[tuple[int, int]] = []  # in the order of the draw: position taken, number of positions
        self._depth = 0  # how many of them the current draw has used

    def advance(self) -> bool:
        """Go to the next combination; False if there is none."""
        while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
            self._taken.pop()
        if not self._taken:
            return False
        position, total = self._taken.pop()
        self._taken.append((position + 1, total))
        self._depth, self.params = 0, {}
        return True

    def _take(self, name: str, total: int) -> int:
        if self._depth == len(self._taken):
            self._taken.append((0, total))
        self._depth += 1
        return self._taken[self._depth - 1][0]

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        self.params[name] = choices[self._take(name, len(choices))]
        return self.params[name]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return low

    def suggest_int(self, name: str, low: int, high: int) -> int:
        self.params[name] = value = low + self._take(name, high - low + 1)
        return value


def draw_every(suggest: Callable[[EveryTrial], T], trial: EveryTrial | None = None) -> Iterator[tuple[Params, T]]:
    """Every result of a function that draws, each with the parameters that give it.

    Args:
        suggest: Draws from a trial, such as `partial(draw, tree)`, which has `count(tree)` results.
        trial: A fresh trial. Without one, a continuous domain gives its low end only.
    """
    trial = trial or EveryTrial()
    while True:
        values = suggest(trial)
        yield trial.params, values
        if not trial.advance():
            return


def count(tree: Tree) -> int:
    """The number of combinations of the discrete domains; a continuous domain counts once."""
    match tree:
        case dict():
            return math.prod(map(count, tree.values()))
        case Choice():
            return sum(map(count, tree.options))
        case IntUniform():
            return tree.high - tree.low + 1
        case _:
            return 1


class ShuffledTrial(EveryTrial):
    """Draws each combination once, the first at random; a continuous domain gives another value in each draw."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.floats = RandomTrial(seed)

    def _take(self, name: str, total: int) -> int:
        return (super()._take(name, total) + random.Random(f"{self.seed} {name}").randrange(total)) % total

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.params[name] = value = self.floats.suggest_float(name, low, high, log=log)
        return value


class GridTrial(EveryTrial):
    """Draws each combination once, and refuses a continuous domain."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        raise UserError(
            f"{name} is continuous from {low} to {high}, so search.sampler=grid cannot list its values: "
            f"give it a choice, or search with search.sampler=tpe or random."
        )
