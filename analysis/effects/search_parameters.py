"""Recipes as points of their space's holes, and how alike two of them are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from spaces.parameters.domains import (
    Choice,
    Domain,
    Interval,
    IntUniform,
    LogUniform,
    Uniform,
    find_holes,
    format_value,
)
from spaces.parameters.draws import RandomTrial, draw

OTHER = "other"  # a baseline or a warm start may lie outside the domain
LENGTH_SCALE = 0.4  # of an interval's width: how far a value tells of its neighbours
_MISSING = object()


@dataclass(frozen=True)
class Hole:
    """An outermost hole of a space. `name` is that of its parameter; those inside it begin with the same name."""

    name: str
    domain: Domain

    @property
    def technique(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Level:
    """A part of a hole that is compared with the baseline: an option, or a third of an interval.

    `option` is its label in the domain, "" for an interval; `detail` is for a part of an option.
    """

    hole: Hole
    label: str
    part: Domain
    option: str = ""
    detail: bool = False

    @property
    def name(self) -> str:
        return f"{self.hole.name}={self.label}"


def list_holes(recipe: Mapping[str, Any]) -> list[Hole]:
    return [Hole(".".join(map(str, steps)), domain) for steps, domain in find_holes(dict(recipe))]


def encode(holes: list[Hole], recipes: pd.DataFrame) -> pd.DataFrame:
    """Flat recipes as parameters: the label of each option taken, the place in each interval from 0 to 1."""
    rows = [
        dict(pair for hole in holes for pair in _encode(hole.domain, hole.name, hole.name, row))
        for row in recipes.to_dict("records")
    ]
    return pd.DataFrame(rows, index=recipes.index)


def encode_draw(hole: Hole, part: Domain, seed: int) -> dict[str, Any]:
    """A random draw from a part of a hole, as parameters."""
    value = draw(part, RandomTrial(seed), hole.name)
    return dict(_encode(hole.domain, hole.name, hole.name, _flatten(value, hole.name)))


def _flatten(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: v for name, part in value.items() for key, v in _flatten(part, f"{path}.{name}").items()}


def _encode(tree: Any, path: str, name: str, flat: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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


def _fits(tree: Any, path: str, flat: Mapping[str, Any]) -> bool:
    match tree:
        case dict():
            return all(_fits(part, f"{path}.{key}", flat) for key, part in tree.items())
        case Choice():
            return any(_fits(option, path, flat) for option in tree.options)
        case Uniform() | LogUniform() | IntUniform():
            value = flat.get(path)
            return isinstance(value, int | float) and tree.low <= value <= tree.high
        case _:
            return bool(flat.get(path, _MISSING) == tree)


def scale(domain: Uniform | LogUniform | IntUniform, value: float) -> float:
    """Where a value lies in an interval: 0 at its low end, 1 at its high end, beyond these outside."""
    low, high = domain.low, domain.high
    if isinstance(domain, LogUniform):
        tiny = low * 1e-3  # such as 0, for off
        low, high, value = math.log(low), math.log(high), math.log(max(value, tiny))
    return (value - low) / (high - low) if high > low else 0.5


def is_interval(domain: Any) -> TypeGuard[Interval]:
    return isinstance(domain, Uniform | LogUniform | IntUniform)


def list_levels(hole: Hole) -> list[Level]:
    """Each option, the thirds of the intervals inside it, or the thirds of the hole itself."""
    if not isinstance(hole.domain, Choice):
        return [Level(hole, text, part) for text, part in _thirds(hole.domain)]
    levels = []
    for key, option in zip(hole.domain.labels, hole.domain.options, strict=True):
        inside = [(steps, inner) for steps, inner in find_holes(option) if is_interval(inner)]
        label = _describe_option(key, inside)
        levels.append(Level(hole, label, Choice((option,)), key))
        for steps, inner in inside if isinstance(option, dict) else ():
            for text, part in _thirds(inner):
                name = " ".join([*([] if key.isdigit() else [label]), *map(str, steps), text])
                levels.append(Level(hole, name, Choice((_put(option, steps, part),)), key, detail=True))
    return levels


def _describe_option(key: str, inside: list[tuple[tuple[Any, ...], Any]]) -> str:
    """Its label, without the field where that is one; by the intervals in it where the label is but a number."""
    if key.isdigit() and inside:
        return ", ".join(f"{'.'.join(map(str, steps))} {d.low:g} to {d.high:g}".strip() for steps, d in inside)
    return key.partition("=")[2] or key


def _put(tree: dict[Any, Any], steps: tuple[Any, ...], value: Any) -> dict[Any, Any]:
    first, *rest = steps
    return {**tree, first: _put(tree[first], tuple(rest), value) if rest else value}


def _thirds(domain: Any) -> Iterator[tuple[str, Any]]:
    low, high = domain.low, domain.high
    if isinstance(domain, IntUniform):
        edges = sorted({low, *(low + round((high + 1 - low) * k / 3) for k in (1, 2)), high + 1})
        spans = [(a, b - 1) for a, b in pairwise(edges)]
    elif isinstance(domain, LogUniform):
        edges = [low * (high / low) ** (k / 3) for k in range(4)]
        spans = list(pairwise(edges))
    else:
        edges = [low + (high - low) * k / 3 for k in range(4)]
        spans = list(pairwise(edges))
    for a, b in spans:
        text = format_value(a) if a == b else f"{a:.3g} to {b:.3g}"
        yield text, replace(domain, low=a, high=b)


def matches(level: Level, recipes: pd.DataFrame) -> np.ndarray:
    """Which flat recipes lie in the level, shape (n,)."""
    flat = recipes.to_dict("records")
    return np.array([_fits(level.part, level.hole.name, row) for row in flat], dtype=bool)


def likeness(hole: Hole, one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """How much each point of `one` tells of each of `other` through this hole: 0 to 1, shape (n, m)."""
    return _likeness(hole.domain, hole.name, one, other)


def _likeness(tree: Any, name: str, one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    if name not in one or name not in other:
        return np.zeros((len(one), len(other)))
    a, b = one[name].to_numpy(), other[name].to_numpy()
    if is_interval(tree):
        distance = a.astype(float)[:, None] - b.astype(float)[None, :]
        return np.nan_to_num(np.exp(-0.5 * (distance / LENGTH_SCALE) ** 2), nan=0.0)
    total = np.zeros((len(one), len(other)))
    for label in (*tree.labels, OTHER):
        same = np.outer(a == label, b == label)
        if not same.any():
            continue
        inner = (
            [] if label == OTHER else list(_inner(tree.option(tree.keys[tree.labels.index(label)]), f"{name}[{label}]"))
        )
        alike = [_likeness(domain, inside, one, other) for inside, domain in inner]
        total += same * ((1 + np.mean(alike, axis=0)) / 2 if alike else 1.0)
    return total


def _inner(option: Any, name: str) -> Iterator[tuple[str, Domain]]:
    for steps, domain in find_holes(option):
        yield ".".join([name, *map(str, steps)]) if steps else name, domain
