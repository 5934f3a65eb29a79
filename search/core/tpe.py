"""TPE's densities of good and of other points (Bergstra et al. 2011), over NumPy matrices.

Parameters that occur together are drawn together (Falkner et al. 2018), as by Optuna's `TPESampler(group=True)`, which is
the reference of the tests. With its study a proposal takes 12 to 16 times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from spaces.parameters.domains import Scalar

CANDIDATES = 24  # drawn for each group of parameters; that with the largest ratio of the densities is taken
_LATEST = 25  # points that count as one each; each older one counts less
_NARROWEST = 100  # a kernel has at least 1/100 of the width of its axis


@dataclass(frozen=True)
class Axis:
    """The values of one parameter, and as numbers: positions of its options, whole numbers, or logarithms."""

    low: float
    high: float
    options: tuple[Scalar, ...] = ()
    is_log: bool = False
    is_whole: bool = False

    @property
    def edges(self) -> tuple[float, float]:
        """The ends of its numbers, where a whole number stands for the half to both of its sides."""
        if self.is_log:
            return math.log(self.low), math.log(self.high)
        return (self.low - 0.5, self.high + 0.5) if self.is_whole else (self.low, self.high)

    def encode(self, value: Scalar) -> float:
        if self.options:
            return self.options.index(value)
        return math.log(value) if self.is_log else value  # type: ignore[arg-type,return-value]  # a number

    def decode(self, number: float) -> Scalar:
        if self.options:
            return self.options[int(number)]
        # exp(log(high)) can be slightly above high because of rounding.
        value = min(max(math.exp(number) if self.is_log else float(number), self.low), self.high)
        return int(value) if self.is_whole else value

    def draw(self, random: np.random.Generator) -> Scalar:
        """Draw a value; all are equally likely."""
        if self.options or self.is_whole:
            return self.decode(int(random.integers(int(self.low), int(self.high), endpoint=True)))
        return self.decode(random.uniform(*self.edges))


def grow(matrix: np.ndarray, rows: int, columns: int = 0) -> np.ndarray:
    """Return the matrix, twice as large as it must be wherever it is too small, with NaN in what is new."""
    more = [
        0 if needed <= size else 2 * needed - size for needed, size in zip((rows, columns), matrix.shape, strict=True)
    ]
    return np.pad(matrix, [(0, more[0]), (0, more[1])], constant_values=np.nan) if any(more) else matrix


class Points:
    """A matrix that grows: a row for each point, a column for each parameter, NaN where a point has no such parameter."""

    def __init__(self) -> None:
        self.axes: dict[str, Axis] = {}
        self.groups: list[list[str]] = []  # parameters that occur together: a point has all of a group, or none
        self.count = 0
        self._columns: dict[str, int] = {}
        self._values = np.full((64, 16), np.nan)

    def add(self, params: dict[str, Scalar], axes: dict[str, Axis]) -> int:
        """Add a point with its parameters, of which only those with an axis count; return its row."""
        self.axes |= axes
        for name in axes:
            self._columns.setdefault(name, len(self._columns))
        self._values = grow(self._values, self.count + 1, len(self.axes))
        columns = [self._columns[name] for name in axes]
        self._values[self.count, columns] = [axis.encode(params[name]) for name, axis in axes.items()]
        self._divide(axes)
        self.count += 1
        return self.count - 1

    def of(self, rows: np.ndarray, group: Sequence[str]) -> np.ndarray:
        """Return the numbers of a group of parameters at those rows that have them."""
        if group[0] not in self._columns:
            return np.empty((0, len(group)))
        columns = [self._columns[name] for name in group]
        return self._values[rows[~np.isnan(self._values[rows, columns[0]])][:, None], columns]

    def _divide(self, names: Iterable[str]) -> None:
        new = set(names)
        groups = []
        for group in self.groups:
            inside = [name for name in group if name in new]
            groups += [inside, [name for name in group if name not in new]] if inside else [group]
            new.difference_update(inside)
        groups.append([name for name in names if name in new])
        self.groups = [group for group in groups if group]


class Options:
    """The kernels of choices: with K of them and C options, one has (1 + K)/(C + K) for its own option, 1/(C + K) else."""

    def __init__(self, points: np.ndarray, axes: Sequence[Axis]) -> None:
        self._sizes = np.array([len(axis.options) for axis in axes])
        count = len(points) + 1
        self._taken = np.vstack([points, np.full(len(axes), -1)]).astype(int)  # the prior takes none
        self._stays = count / (self._sizes + count)
        self._agreement = math.log(count + 1)
        self._logs = np.full(count, -np.log(self._sizes + count).sum())
        self._logs[-1] = -np.log(self._sizes).sum()

    def draw(self, kernels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        taken = self._taken[kernels]
        moves = (taken < 0) | (random.random(taken.shape) > self._stays)
        return np.where(moves, random.integers(self._sizes, size=taken.shape), taken)

    def log_densities(self, points: np.ndarray) -> np.ndarray:
        return self._logs + self._agreement * (points[:, None].astype(int) == self._taken).sum(axis=2)


class Numbers:
    """The kernels of numbers: normal distributions within the edges of their axes; whole numbers get the mass of theirs."""

    def __init__(self, points: np.ndarray, axes: Sequence[Axis]) -> None:
        self._is_whole = np.array([axis.is_whole for axis in axes])
        self._low, self._high = low, high = np.array([axis.edges for axis in axes]).T
        self._centers = np.vstack([points, (low + high) / 2])
        self._widths = np.vstack([_measure_widths(points, low, high), high - low])
        self._below = ndtr((low - self._centers) / self._widths)
        self._mass = ndtr((high - self._centers) / self._widths) - self._below

    def draw(self, kernels: np.ndarray, random: np.random.Generator) -> np.ndarray:
        centers, widths = self._centers[kernels], self._widths[kernels]
        masses = self._below[kernels] + random.random(centers.shape) * self._mass[kernels]
        numbers = np.clip(centers + widths * ndtri(masses), self._low, self._high)
        whole = np.clip(np.round(numbers), np.ceil(self._low), np.floor(self._high))
        return np.where(self._is_whole, whole, numbers)

    def log_densities(self, points: np.ndarray) -> np.ndarray:
        numbers = points[:, None]
        densities = np.exp(-(((numbers - self._centers) / self._widths) ** 2) / 2)
        densities /= math.sqrt(2 * math.pi) * self._widths
        if self._is_whole.any():
            left, right = (ndtr((numbers + half - self._centers) / self._widths) for half in (-0.5, 0.5))
            densities = np.where(self._is_whole, right - left, densities)
        return np.log(np.maximum(densities / self._mass, np.finfo(float).tiny)).sum(axis=2)


class Kernels:
    """A Parzen estimator over some axes: a kernel around each point, and a wide one in the middle, the prior."""

    def __init__(self, points: np.ndarray, axes: Sequence[Axis]) -> None:
        """`points` is (count, axes), the oldest first."""
        older = max(0, len(points) - _LATEST)
        weights = np.append(np.linspace(1 / max(1, len(points)), 1, older), np.ones(len(points) - older + 1))
        self._weights = weights / weights.sum()
        self._count = len(axes)
        choices = [place for place, axis in enumerate(axes) if axis.options]
        numbers = [place for place, axis in enumerate(axes) if not axis.options]
        self._parts = [
            (places, part(points[:, places], [axes[place] for place in places]))
            for places, part in ((choices, Options), (numbers, Numbers))
            if places
        ]

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw `count` points."""
        drawn = np.empty((count, self._count))
        kernels = random.choice(len(self._weights), size=count, p=self._weights)
        for places, part in self._parts:
            drawn[:, places] = part.draw(kernels, random)
        return drawn

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Return the logarithm of the density at each point."""
        logs = np.log(self._weights) + sum(part.log_densities(points[:, places]) for places, part in self._parts)
        largest = logs.max(axis=1)
        return np.log(np.exp(logs - largest[:, None]).sum(axis=1)) + largest


class Proposal:
    """Draws each group of parameters where good points are denser than others."""

    def __init__(self, points: Points, good: np.ndarray, others: np.ndarray, random: np.random.Generator) -> None:
        """`good` and `others` are rows of `points`, the oldest first."""
        self._points, self._good, self._others, self._random = points, good, others, random
        self._kernels: dict[str, tuple[Kernels, ...]] = {}  # by the first parameter of a group
        self._drawn: dict[str, Scalar] = {}

    def begin(self) -> Callable[[str, Axis], Scalar]:
        """Begin a draw, and return the function that chooses each value."""
        self._drawn = {}
        return self._choose

    def _choose(self, name: str, axis: Axis) -> Scalar:
        """Return the value of a parameter; the first of a group draws the values of all."""
        if name not in self._drawn:
            group = next((group for group in self._points.groups if name in group), [name])
            axes = [self._points.axes.get(each, axis) for each in group]
            if group[0] not in self._kernels:
                found = (self._points.of(rows, group) for rows in (self._good, self._others))
                self._kernels[group[0]] = tuple(Kernels(points, axes) for points in found)
            good, others = self._kernels[group[0]]
            candidates = good.draw(CANDIDATES, self._random)
            best = candidates[np.argmax(good.log_density(candidates) - others.log_density(candidates))]
            self._drawn |= {each: axis.decode(number) for each, axis, number in zip(group, axes, best, strict=True)}
        return self._drawn[name]


def _measure_widths(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the width of the kernel at each point on each axis: the distance to the farther one of its neighbours.

    An end of the axis is a neighbour only where there is no other point.
    """
    order = points.argsort(axis=0, kind="stable")
    gaps = np.diff(np.vstack([low, np.take_along_axis(points, order, axis=0), high]), axis=0)
    if len(points) > 1:
        gaps[0] = gaps[-1] = 0
    widths = np.empty_like(points)
    np.put_along_axis(widths, order, np.maximum(gaps[:-1], gaps[1:]), axis=0)
    return np.clip(widths, (high - low) / min(_NARROWEST, len(points) + 2), high - low)
