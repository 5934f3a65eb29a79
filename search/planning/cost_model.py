"""Predict the cost of any recipe from the few that were measured: a linear model of the logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from search.planning.targets import Features, key_of

if TYPE_CHECKING:
    from training.cost import Cost

SHRINKAGE = 0.02  # of the ridge regression: a single measurement of a choice counts as 98 %
BEYOND = math.log(4)  # a prediction is at most four times what was measured of any recipe, and at least a quarter
SECONDS = ("train_seconds", "evaluation_seconds", "checkpoint_seconds")
DEVICE = ("train_memory_mb", "evaluation_memory_mb", "device_memory_mb")
LEAST = {"seconds": 0.005, "mb": 32.0}  # below it, the logarithm would be that of noise


class CostModel:
    """Multiplies the cost of the first point by a factor for each choice that differs.

    Memory is that above what the process needs before it loads anything. The time of a trial's start is the median, because
    it differs more by chance than by recipe. Measured features return what was measured.
    """

    def __init__(self, points: Sequence[tuple[Features, Cost]], is_gpu: bool) -> None:
        from sklearn.feature_extraction import DictVectorizer  # here, so that a sweep starts before scikit-learn loads
        from sklearn.linear_model import Ridge
        from sklearn.pipeline import make_pipeline

        costs = [cost for _, cost in points]
        self.base = points[0][0]
        self.known = {key_of(features): cost for features, cost in points}
        floor = min(cost.floor_mb for cost in costs)
        self.floors = dict.fromkeys(SECONDS, 0.0) | dict.fromkeys(DEVICE, 0.0 if is_gpu else floor) | {"ram_mb": floor}
        values = np.array([[self._log(cost, name) for name in self.floors] for cost in costs])
        self.start = values[0]
        self.bounds = values.min(axis=0) - BEYOND, values.max(axis=0) + BEYOND
        self.effects = make_pipeline(DictVectorizer(sparse=False), Ridge(SHRINKAGE, fit_intercept=False))
        self.effects.fit([self._encode(features) for features, _ in points], values - self.start)
        setup = float(np.median([cost.setup_seconds for cost in costs]))
        self.others = asdict(costs[0]) | {"setup_seconds": setup}

    def predict(self, features: Features) -> Cost:
        """Return the cost of a recipe with these features."""
        from training.cost import Cost

        if (known := self.known.get(key_of(features))) is not None:
            return known
        logs = np.clip(self.start + self.effects.predict([self._encode(features)])[0], *self.bounds)
        pairs = zip(self.floors.items(), logs, strict=True)
        predicted = self.others | {name: float(np.exp(log)) + floor for (name, floor), log in pairs}
        predicted["images_per_second"] *= self.others["train_seconds"] / predicted["train_seconds"]
        if isinstance(size := features.get("batch_size"), float):
            predicted["batch_size"] = int(size)
        return self.known.setdefault(key_of(features), Cost(**predicted))

    def _log(self, cost: Cost, name: str) -> float:
        least = LEAST["mb" if name.endswith("mb") else "seconds"]
        return math.log(max(least, getattr(cost, name) - self.floors[name]))

    def _encode(self, features: Features) -> dict[str, str | float]:
        """Return the differences from the base; of numbers the logarithm, in which the cost is linear."""
        differences: dict[str, str | float] = {"": 0.0}  # scikit-learn needs a column also where nothing differs
        for name, value in features.items():
            base = self.base.get(name)
            if isinstance(value, float) and isinstance(base, float):
                differences[name] = math.log(value / base)
            elif value != base:
                differences[name] = str(value)
        return differences


@dataclass(frozen=True)
class ModelError:
    """How far predictions were from measurements of recipes that the model did not have, as factors of at least 1."""

    recipes: int
    time: float
    memory: float


def measure_error(model: CostModel, checks: Sequence[tuple[Features, Cost]]) -> ModelError | None:
    """Compare predictions with measurements; None without measurements."""
    if not checks:
        return None
    pairs = [(model.predict(features), cost) for features, cost in checks]
    times = [_factor(epoch_seconds(predicted), epoch_seconds(cost)) for predicted, cost in pairs]
    memory = [_factor(predicted.device_memory_mb, cost.device_memory_mb) for predicted, cost in pairs]
    return ModelError(len(checks), float(np.mean(times)), float(np.mean(memory)))


def _factor(first: float, second: float) -> float:
    return max(first, second) / max(1e-9, min(first, second))


def epoch_seconds(cost: Cost) -> float:
    """Return the time of a whole epoch."""
    return cost.train_seconds + cost.evaluation_seconds + cost.checkpoint_seconds
