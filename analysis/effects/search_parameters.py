"""Recipes as points in the search parameters of their space, and the similarity of two points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from spaces.parameters.domains import (
    Choice,
    Domain,
    Interval,
    IntUniform,
    LogUniform,
    Steps,
    Tree,
    Uniform,
    find_parameters,
    format_value,
    keep_plain,
    label_of,
)
from spaces.parameters.draws import RandomTrial, draw
from training.recipe import flatten

OTHER = "other"  # A baseline or a warm start can lie outside the domain.
# The distance over which scores in an interval are similar, as a share of its width.
LENGTH_SCALE = 0.4

Point = dict[str, str | float]  # the label of each option taken and the place in each interval, by parameter name


@dataclass(frozen=True)
class SearchParameter:
    """An outermost search parameter of a space. Names of parameters inside its options begin with `name`."""

    name: str
    domain: Domain

    @property
    def technique(self) -> str:
        """The field of the recipe that it belongs to."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Level:
    """A part of a parameter that is compared with the baseline: an option, or a third of an interval.

    `option` is its label in the domain, empty for an interval. `detail` is True for a part of an option.
    """

    parameter: SearchParameter
    label: str
    part: Domain
    option: str = ""
    detail: bool = False

    @property
    def name(self) -> str:
        return f"{self.parameter.name}={self.label}"


def list_parameters(recipe: Mapping[str, Tree]) -> list[SearchParameter]:
    """The outermost search parameters of a space's recipe."""
    return [SearchParameter(".".join(map(str, steps)), domain) for steps, domain in find_parameters(dict(recipe))]


def encode(parameters: list[SearchParameter], recipes: pd.DataFrame) -> pd.DataFrame:
    """Flat recipes, one in each row, as points: the label of each option taken, and the place in each interval, 0 to 1."""
    rows = [encode_recipe(parameters, row) for row in _list_rows(recipes, parameters)]
    columns = None if rows else [parameter.name for parameter in parameters]
    return pd.DataFrame(rows, index=recipes.index, columns=columns)


def encode_recipe(parameters: list[SearchParameter], flat: Mapping[str, object]) -> Point:
    """One flat recipe as a point, as in `encode`."""
    return dict(
        pair for parameter in parameters for pair in _encode(parameter.domain, parameter.name, parameter.name, flat)
    )


def encode_draw(parameter: SearchParameter, part: Domain, seed: int) -> Point:
    """A random draw from a part of a parameter's domain, as a point."""
    value = draw(part, RandomTrial(seed), parameter.name)
    return dict(_encode(parameter.domain, parameter.name, parameter.name, flatten({parameter.name: value})))


def _encode(tree: Tree, path: str, name: str, flat: Mapping[str, object]) -> Iterator[tuple[str, str | float]]:
    match tree:
        case dict():
            for key, part in tree.items():
                yield from _encode(part, f"{path}.{key}", f"{name}.{key}", flat)
        case Choice():
            taken = [i for i, option in enumerate(tree.options) if _fits(option, path, flat)]
            if not taken:
                yield name, OTHER
                return
            label = tree.labels[taken[0]]
            yield name, label
            yield from _encode(tree.options[taken[0]], path, f"{name}[{label}]", flat)
        case Uniform() | LogUniform() | IntUniform():
            value = flat.get(path)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield name, scale(tree, value)


def _fits(tree: Tree, path: str, flat: Mapping[str, object]) -> bool:
    """Whether a flat recipe lies in the tree; it can have fields that the tree does not have."""
    match tree:
        case dict():
            return all(_fits(part, f"{path}.{key}", flat) for key, part in tree.items())
        case Choice():
            return any(_fits(option, path, flat) for option in tree.options)
        case Uniform() | LogUniform() | IntUniform():
            value = flat.get(path)
            return isinstance(value, int | float) and tree.low <= value <= tree.high
        case _:
            return path in flat and bool(flat[path] == tree)


def scale(domain: Interval, value: float) -> float:
    """The place of a value in an interval: 0 at its low end, 1 at its high end, and beyond these outside it."""
    low, high = domain.low, domain.high
    if isinstance(domain, LogUniform):
        tiny = low * 1e-3  # for values such as 0 that have no logarithm
        low, high, value = math.log(low), math.log(high), math.log(max(value, tiny))
    return (value - low) / (high - low) if high > low else 0.5


def list_levels(parameter: SearchParameter) -> list[Level]:
    """The levels of a parameter: each option with the thirds of its intervals, or the thirds of the interval."""
    if not isinstance(parameter.domain, Choice):
        return [Level(parameter, text, part) for text, part in _thirds(parameter.domain)]
    levels = []
    for key, option in zip(parameter.domain.labels, parameter.domain.options, strict=True):
        inside = [(steps, inner) for steps, inner in find_parameters(option) if isinstance(inner, Interval)]
        ranges = ", ".join(f"{'.'.join(map(str, steps))} {d.low:g} to {d.high:g}".strip() for steps, d in inside)
        label = _describe_option(key, option, ranges)
        levels.append(Level(parameter, label, Choice((option,)), key))
        for steps, inner in inside if isinstance(option, dict) else ():
            for text, part in _thirds(inner):
                name = " ".join([*([] if label == ranges else [label]), *map(str, steps), text])
                levels.append(Level(parameter, name, Choice((_put(option, steps, part),)), key, detail=True))
    return levels


def _describe_option(key: str, option: Tree, ranges: str) -> str:
    """The option's label without its field; if that names its place, the option, or its ranges where it has no more."""
    if key == label_of(option, -1):
        return key.partition("=")[2] or key
    return ranges if ranges and keep_plain(option) is None else format_value(option)


def _put(tree: Tree, steps: Steps, value: Tree) -> Tree:
    """A copy of the tree with the value at these steps, which lead through mappings."""
    if not steps or not isinstance(tree, dict):
        return value
    first = str(steps[0])
    return {**tree, first: _put(tree[first], steps[1:], value)}


def _thirds(domain: Interval) -> Iterator[tuple[str, Interval]]:
    low, high = domain.low, domain.high
    if isinstance(domain, IntUniform):
        edges = sorted({low, *(low + round((high + 1 - low) * k / 3) for k in (1, 2)), high + 1})
        spans: list[tuple[float, float]] = [(a, b - 1) for a, b in pairwise(edges)]
    elif isinstance(domain, LogUniform):
        spans = list(pairwise(low * (high / low) ** (k / 3) for k in range(4)))
    else:
        spans = list(pairwise(low + (high - low) * k / 3 for k in range(4)))
    for a, b in spans:
        text = format_value(a) if a == b else f"{a:.3g} to {b:.3g}"
        yield text, replace(domain, low=a, high=b)  # type: ignore[arg-type]  # whole numbers for an IntUniform


def matches(level: Level, recipes: pd.DataFrame) -> np.ndarray:
    """A mask of the flat recipes that lie in the level, shape (n,)."""
    flat = _list_rows(recipes, [level.parameter])
    return np.array([_fits(level.part, level.parameter.name, row) for row in flat], dtype=bool)


def _list_rows(recipes: pd.DataFrame, parameters: list[SearchParameter]) -> list[dict[str, object]]:
    """The rows with the fields of these parameters alone. `DataFrame.to_dict` of all took most of a report's time."""
    names = [parameter.name for parameter in parameters]
    rows: list[dict[str, object]] = [{} for _ in range(len(recipes))]
    for column in recipes.columns:
        if any(column == name or column.startswith(f"{name}.") for name in names):
            for row, value in zip(rows, recipes[column].tolist(), strict=True):
                row[column] = value.item() if isinstance(value, np.generic) else value
    return rows


def likeness(parameter: SearchParameter, one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """The similarity of each point of `one` to each of `other` in this parameter, from 0 to 1, shape (n, m)."""
    return _likeness(parameter.domain, parameter.name, one, other)


def _likeness(tree: Domain, name: str, one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    if name not in one or name not in other:
        return np.zeros((len(one), len(other)))
    a, b = one[name].to_numpy(), other[name].to_numpy()
    if isinstance(tree, Interval):
        distance = a.astype(float)[:, None] - b.astype(float)[None, :]
        return np.nan_to_num(np.exp(-0.5 * (distance / LENGTH_SCALE) ** 2), nan=0.0)
    total = np.zeros((len(one), len(other)))
    for label, option in zip((*tree.labels, OTHER), (*tree.options, None), strict=True):
        same = np.outer(a == label, b == label)
        if not same.any():
            continue
        alike = [
            _likeness(domain, ".".join([f"{name}[{label}]", *map(str, steps)]), one, other)
            for steps, domain in find_parameters(option)
        ]
        total += same * ((1 + np.mean(alike, axis=0)) / 2 if alike else 1.0)
    return total
