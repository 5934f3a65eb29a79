"""Predict the cost of any recipe from the few that were measured: a linear model of the logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from search.planning.features import Features, key_of

if TYPE_CHECKING:
    from training.cost import Cost

SHRINKAGE = 0.02  # a single measurement of a choice counts as 98 %
BEYOND = math.log(4)  # a prediction is at most four times what was measured of any recipe, and at least a quarter
SECONDS = ("train_seconds", "evaluation_seconds", "checkpoint_seconds")
PROCESS = ("ram_mb",)
DEVICE = ("train_memory_mb", "evaluation_memory_mb", "device_memory_mb")
LEAST = {"seconds": 0.005, "mb": 32.0}  # below it, the logarithm would be that of noise


@dataclass(frozen=True)
class Point:
    """A measured recipe."""

    features: Features
    cost: Cost


class CostModel:
    """Multiplies the cost of the first point by a factor for each choice that differs.

    Memory is that above what the process needs before it loads anything. The time of a trial's start is the median, because
    it differs more by chance than by recipe. Measured features return what was measured.
    """

    def __init__(self, points: Sequence[Point], is_gpu: bool) -> None:
        self.base = points[0].features
        self.known = {key_of(point.features): point.cost for point in points}
        floor = min(point.cost.floor_mb for point in points)
        self.floors = dict.fromkeys(SECONDS, 0.0) | dict.fromkeys(DEVICE, 0.0 if is_gpu else floor) | {"ram_mb": floor}
        self.columns = list(dict.fromkeys(name for point in points for name in self._encode(point.features)))
        rows = np.array([self._row(point.features) for point in points]).reshape(len(points), len(self.columns))
        values = np.array([[self._log(point.cost, name) for name in self.floors] for point in points])
        self.start = values[0]
        self.bounds = values.min(axis=0) - BEYOND, values.max(axis=0) + BEYOND
        gram = rows.T @ rows + SHRINKAGE * np.eye(len(self.columns))
        self.effects = (
            np.linalg.solve(gram, rows.T @ (values - self.start)) if self.columns else np.zeros((0, values.shape[1]))
        )
        setup = float(np.median([point.cost.setup_seconds for point in points]))
        self.others = asdict(points[0].cost) | {"setup_seconds": setup}

    def predict(self, features: Features) -> Cost:
        """Return the cost of a recipe with these features."""
        from training.cost import Cost

        if (known := self.known.get(key_of(features))) is not None:
            return known
        logs = np.clip(self.start + np.array(self._row(features)) @ self.effects, *self.bounds)
        values = {
            name: float(np.exp(log)) + floor for (name, floor), log in zip(self.floors.items(), logs, strict=True)
        }
        images = self.others["images_per_second"] * self.others["train_seconds"]
        size = features.get("batch_size")
        return Cost(
            **self.others
            | values
            | {"images_per_second": images / values["train_seconds"]}
            | ({"batch_size": int(size)} if isinstance(size, float) else {})
        )

    def _log(self, cost: Cost, name: str) -> float:
        least = LEAST["mb" if name.endswith("mb") else "seconds"]
        return math.log(max(least, getattr(cost, name) - self.floors[name]))

    def _encode(self, features: Features) -> dict[str, float]:
        """Return the differences from the base by column."""
        columns: dict[str, float] = {}
        for name, value in features.items():
            base: Any = self.base.get(name)
            if value == base:
                continue
            if isinstance(value, float) and isinstance(base, float):
                columns[name] = math.log(value / base)
            else:
                columns[f"{name}={value}"] = 1.0
        return columns

    def _row(self, features: Features) -> list[float]:
        found = self._encode(features)
        return [found.get(column, 0.0) for column in self.columns]


@dataclass(frozen=True)
class ModelError:
    """How far predictions were from measurements of recipes that the model did not have, as factors of at least 1."""

    recipes: int
    time: float
    memory: float


def measure_error(model: CostModel, checks: Sequence[Point]) -> ModelError | None:
    """Compare predictions with measurements; None without measurements."""
    if not checks:
        return None
    predicted = [model.predict(point.features) for point in checks]
    times = [_factor(epoch_seconds(a), epoch_seconds(b.cost)) for a, b in zip(predicted, checks, strict=True)]
    memory = [_factor(a.device_memory_mb, b.cost.device_memory_mb) for a, b in zip(predicted, checks, strict=True)]
    return ModelError(len(checks), float(np.mean(times)), float(np.mean(memory)))


def _factor(one: float, other: float) -> float:
    return max(one, other) / max(1e-9, min(one, other))


def epoch_seconds(cost: Cost) -> float:
    """Return the time of a whole epoch."""
    return cost.train_seconds + cost.evaluation_seconds + cost.checkpoint_seconds
