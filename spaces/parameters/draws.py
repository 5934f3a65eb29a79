"""One draw from a tree with holes, define-by-run: a hole inside a branch is asked for only when the branch is taken."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Uniform
from training.errors import UserError


class Trial(Protocol):
    """The part of `optuna.Trial` that a draw needs."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...
    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...
    def suggest_int(self, name: str, low: int, high: int) -> int: ...


def draw(tree: Any, trial: Trial, name: str = "") -> Any:
    """Plain values, each hole filled by the trial; a parameter's name carries its branch: `optimizer[adamw].lr`."""
    match tree:
        case dict():
            return {key: draw(value, trial, join(name, key)) for key, value in tree.items()}
        case Choice():
            key = trial.suggest_categorical(name, tree.keys)
            position = tree.keys.index(key)
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

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        if log:
            # exp(log(high)) may round to just above high
            return min(max(math.exp(self.random.uniform(math.log(low), math.log(high))), low), high)
        return self.random.uniform(low, high)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self.random.randint(low, high)


class EveryTrial:
    """Draws each combination of choices and whole numbers once, as long as `advance` says that there is another.

    Of a continuous domain it takes the low end.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []  # in the order they are asked for: which option, of how many
        self.asked = 0

    def advance(self) -> bool:
        while self.taken and self.taken[-1][0] + 1 == self.taken[-1][1]:
            self.taken.pop()
        if not self.taken:
            return False
        position, count = self.taken.pop()
        self.taken.append((position + 1, count))
        self.asked = 0
        return True

    def _take(self, count: int) -> int:
        if self.asked == len(self.taken):
            self.taken.append((0, count))
        self.asked += 1
        return self.taken[self.asked - 1][0]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return choices[self._take(len(choices))]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return low

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return low + self._take(high - low + 1)


def count(tree: Any) -> int:
    """Combinations of the discrete part; a continuous domain counts once."""
    match tree:
        case dict():
            return math.prod(map(count, tree.values()))
        case Choice():
            return sum(map(count, tree.options))
        case IntUniform():
            return tree.high - tree.low + 1
        case _:
            return 1


def enumerate_params(tree: Any, name: str = "") -> Iterator[dict[str, Any]]:
    """The parameters of every point of a finite tree.

    Raises:
        UserError: a domain in it is continuous.
    """
    match tree:
        case dict():
            parts = [list(enumerate_params(value, join(name, key))) for key, value in tree.items()]
            for combination in itertools.product(*parts):
                yield {key: value for params in combination for key, value in params.items()}
        case Choice():
            for key, label, option in zip(tree.keys, tree.labels, tree.options, strict=True):
                yield from ({name: key, **params} for params in enumerate_params(option, f"{name}[{label}]"))
        case IntUniform():
            yield from ({name: value} for value in range(tree.low, tree.high + 1))
        case Uniform() | LogUniform():
            raise UserError(
                f"{name} is continuous from {tree.low} to {tree.high}, so search.sampler=grid cannot list its values: "
                f"give it a choice, or search with search.sampler=tpe or random."
            )
        case _:
            yield {}
