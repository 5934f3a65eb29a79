"""Holes: what may stand in a recipe where a value would, and their names in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

DISCRIMINATORS = ("name", "policy")


@dataclass(frozen=True)
class Uniform:
    low: float
    high: float


@dataclass(frozen=True)
class LogUniform:
    low: float
    high: float


@dataclass(frozen=True)
class IntUniform:
    low: int
    high: int


@dataclass(frozen=True)
class Choice:
    """Options are values, mappings that may hold further holes, or holes."""

    options: tuple[Any, ...]

    @cached_property
    def keys(self) -> tuple[Any, ...]:
        """What Optuna is given to choose from: the options where they are plain, else their labels."""
        return self.options if all(map(is_scalar, self.options)) else self.labels

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """One name for each option, in parameter names and tables."""
        plain = [label_of(option, position) for position, option in enumerate(self.options)]
        return tuple(f"{label}#{i}" if plain.count(label) > 1 else label for i, label in enumerate(plain))

    def option(self, key: Any) -> Any:
        return self.options[self.keys.index(key)]


Domain = Uniform | LogUniform | IntUniform | Choice
Interval = Uniform | LogUniform | IntUniform

WORDS: dict[str, type[Domain]] = {
    "choice": Choice,
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "int_uniform": IntUniform,
}


def word_of(domain: Domain) -> str:
    return next(word for word, kind in WORDS.items() if isinstance(domain, kind))


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def label_of(option: Any, position: int) -> str:
    """The option's name, else its first constant (`alpha=0.0`), else its position."""
    if is_scalar(option):
        return format_value(option)
    constants = {k: v for k, v in option.items() if is_scalar(v)} if isinstance(option, dict) else {}
    for field in DISCRIMINATORS:
        if field in constants:
            return format_value(constants[field])
    for field, value in constants.items():
        return f"{field}={format_value(value)}"
    return str(position)


def find_holes(tree: Any, steps: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Domain]]:
    """The outermost holes of a tree, and where they are."""
    match tree:
        case dict():
            for key, value in tree.items():
                yield from find_holes(value, (*steps, key))
        case Choice() | Uniform() | LogUniform() | IntUniform():
            yield steps, tree


def unparse(tree: Any) -> Any:
    """A tree with domains back as the plain mappings that a file holds."""
    match tree:
        case dict():
            return {key: unparse(value) for key, value in tree.items()}
        case Choice():
            return {"choice": [unparse(option) for option in tree.options]}
        case Uniform() | LogUniform() | IntUniform():
            return {word_of(tree): [tree.low, tree.high]}
        case _:
            return tree


def format_value(value: Any) -> str:
    """A value or domain as a person would write it in a file, on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{key}: {format_value(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(format_value, value)) + "]"
        case Uniform() | LogUniform() | IntUniform() | Choice():
            return format_value(unparse(value))
        case _:
            return str(value)
