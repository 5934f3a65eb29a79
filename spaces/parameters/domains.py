"""The domain of a search parameter, which a space has in place of a value, and its words in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeGuard

DISCRIMINATORS = ("name", "policy")

Scalar: TypeAlias = bool | int | float | str | None
Steps: TypeAlias = tuple[str | int, ...]  # the keys and positions that lead from the root of a file to a value
# A recipe's plain values, any of which a domain may replace. With no domain in it, a tree is plain values.
Tree: TypeAlias = "Scalar | Domain | list[Tree] | dict[str, Tree]"


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
    """Each option is a value, a domain, or a mapping that may hold further search parameters."""

    options: tuple[Tree, ...]

    @cached_property
    def keys(self) -> tuple[Scalar, ...]:
        """The values that Optuna chooses from: the options if all are plain, else their labels."""
        plain = [option for option in self.options if is_scalar(option)]
        return tuple(plain) if len(plain) == len(self.options) else self.labels

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A unique name for each option, used in parameter names and tables."""
        plain = [label_of(option, position) for position, option in enumerate(self.options)]
        return tuple(f"{label}#{i}" if plain.count(label) > 1 else label for i, label in enumerate(plain))


Domain = Uniform | LogUniform | IntUniform | Choice
Interval = Uniform | LogUniform | IntUniform

WORDS: dict[str, type[Domain]] = {
    "choice": Choice,
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "int_uniform": IntUniform,
}


def word_of(domain: Domain) -> str:
    """The key that introduces a domain in a file, such as `log_uniform`."""
    return next(word for word, domain_class in WORDS.items() if isinstance(domain, domain_class))


def is_scalar(value: object) -> TypeGuard[Scalar]:
    return value is None or isinstance(value, bool | int | float | str)


def label_of(option: Tree, position: int) -> str:
    """The option's name, else its first constant (`alpha=0.0`), else its position in the choice."""
    if is_scalar(option):
        return format_value(option)
    constants = {k: v for k, v in option.items() if is_scalar(v)} if isinstance(option, dict) else {}
    for field in DISCRIMINATORS:
        if field in constants:
            return format_value(constants[field])
    for field, value in constants.items():
        return f"{field}={format_value(value)}"
    return str(position)


def find_parameters(tree: Tree, steps: Steps = ()) -> Iterator[tuple[Steps, Domain]]:
    """Find the outermost search parameters of a tree.

    Args:
        tree: A recipe's values, a part of them, or one value.
        steps: The steps that lead to `tree`; each result begins with them.

    Returns:
        The steps to each search parameter, with its domain. Parameters inside the options of a choice are left out.
    """
    match tree:
        case dict():
            for key, value in tree.items():
                yield from find_parameters(value, (*steps, key))
        case Choice() | Uniform() | LogUniform() | IntUniform():
            yield steps, tree


def keep_plain(option: Tree) -> Tree:
    """The option without the fields that are searched; None if nothing is left."""
    if not isinstance(option, dict):
        return None if any(find_parameters(option)) else option
    return {field: value for field, value in option.items() if not any(find_parameters(value))} or None


def unparse(tree: Tree) -> Tree:
    """The plain mappings from which `parse` reads this tree again."""
    match tree:
        case dict():
            return {key: unparse(value) for key, value in tree.items()}
        case Choice():
            return {"choice": [unparse(option) for option in tree.options]}
        case Uniform() | LogUniform() | IntUniform():
            return {word_of(tree): [tree.low, tree.high]}
        case _:
            return tree


def format_value(value: object) -> str:
    """A value or domain on one line, as in a space file."""
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


def format_short(value: object) -> str:
    """A value on one line, a number with at most three digits."""
    return f"{value:.3g}" if isinstance(value, float) else format_value(value)
