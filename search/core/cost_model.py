"""Predict the cost of any recipe from the few that were measured: a linear model of the logarithms; and what to measure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spaces.parameters.draws import RandomTrial
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from training.cost import Cost

SHRINKAGE = 0.02  # of the ridge regression: a single measurement of a choice counts as 98 %
BEYOND = math.log(4)  # a prediction is at most four times what was measured of any recipe, and at least a quarter
SECONDS = ("train_seconds", "evaluation_seconds", "checkpoint_seconds")
DEVICE = ("train_memory_mb", "evaluation_memory_mb", "device_memory_mb")
LEAST = {"seconds": 0.005, "mb": 32.0}  # below it, the logarithm would be that of noise

Features = Mapping[str, str | float]

LEVEL = "unfreeze.level"
NUMBERS = ("preprocessing.image_size", "batch_size", "lora.rank")  # the logarithm of the cost is linear in theirs
FIELDS = (  # the choices of a recipe that decide what it costs, the most important first
    "backbone.name",
    "preprocessing.image_size",
    LEVEL,
    "batch_size",
    "precision.mode",
    "precision.float32",
    "sam.name",
    "activation_checkpointing.enabled",
    "compilation.backend",
    "channels_last.enabled",
    "data_parallel.devices",
    "data_parallel.strategy",
    "lora.rank",
    "evaluation_size.factor",
    "flip_average.enabled",
    "augmentation.policy",
    "augmentation.backend",
    "random_crop.name",
    "optimizer.name",
    "averaging.name",
)

DRAWS = 300  # random recipes that stand for those of the sweep
MOST = 16  # recipes for the branches
CHECKS = 3  # recipes on which the model's error is measured

Kind = Literal["base", "branch", "check"]


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
        self.first = replace(costs[0], setup_seconds=setup)

    def predict(self, features: Features) -> Cost:
        """Return the cost of a recipe with these features."""
        if (known := self.known.get(key_of(features))) is not None:
            return known
        logs = np.clip(self.start + self.effects.predict([self._encode(features)])[0], *self.bounds)
        pairs = zip(self.floors.items(), logs, strict=True)
        predicted: dict[str, Any] = {name: float(np.exp(log)) + floor for (name, floor), log in pairs}
        predicted["images_per_second"] = (
            self.first.images_per_second * self.first.train_seconds / predicted["train_seconds"]
        )
        if isinstance(size := features.get("batch_size"), float):
            predicted["batch_size"] = int(size)
        return self.known.setdefault(key_of(features), replace(self.first, **predicted))

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


def describe_features(recipe: Recipe, level: str) -> dict[str, str | float]:
    """Return the features of a recipe while it trains at a level of unfreeze."""
    flat = recipe.flat() | {LEVEL: level}
    features = {name: _read(name, flat[name]) for name in FIELDS if name in flat}
    on = {type(technique) for technique in recipe.techniques()}
    return features | {name: str(type(getattr(recipe, name, None)) in on) for name in Recipe.plugin_techniques()}


def _read(name: str, value: object) -> str | float:
    is_number = name in NUMBERS and isinstance(value, int | float) and value > 0
    return float(value) if is_number else str(value)  # type: ignore[arg-type]  # checked in the line above


def key_of(features: Features) -> tuple[tuple[str, str | float], ...]:
    """Return a key that is equal for equal features."""
    return tuple(sorted(features.items()))


def list_levels(recipe: Recipe) -> Iterator[tuple[str, int]]:
    """Return the level of unfreeze in each part of the training, with the number of its epochs."""
    starts = [0, *recipe.unfreeze.milestones]
    for level, start, end in zip(recipe.unfreeze.levels, starts, [*starts[1:], recipe.epochs], strict=True):
        yield level, end - start


@dataclass(frozen=True)
class CostTarget:
    """A recipe at one level of unfreeze."""

    recipe: Recipe
    level: str
    kind: Kind = "branch"

    @property
    def features(self) -> Features:
        return describe_features(self.recipe, self.level)


def draw_recipes(space: Space, resolve: Callable[[Recipe], Recipe], count: int = DRAWS) -> list[Recipe]:
    """Return the first baseline and random recipes of a space; draws that conflict are skipped."""
    recipes = [resolve(space.baselines()[0])]
    for seed in range(count):
        with suppress(UserError):
            recipes.append(resolve(read_recipe(space.suggest(RandomTrial(seed)))))
    return recipes


def list_targets(recipes: Sequence[Recipe]) -> list[CostTarget]:
    """Return each recipe at each of its levels of unfreeze, those with equal features once."""
    targets: dict[object, CostTarget] = {}
    for target in (CostTarget(recipe, level) for recipe in recipes for level, _ in list_levels(recipe)):
        targets.setdefault(key_of(target.features), target)
    return list(targets.values())


def choose_targets(candidates: Sequence[CostTarget], most: int = MOST) -> tuple[list[CostTarget], list[str]]:
    """Return the base and the recipes for the branches, and the names of the choices that are left out.

    Each of them differs from the base in one choice, or is a draw with that choice if it does not fit the base.
    """
    base = replace(candidates[0], kind="base")
    chosen, left_out = {key_of(base.features): base}, []
    for name in base.features:
        for donor in _find_donors(name, candidates):
            target = _transplant(base, donor, name)
            if len(chosen) > most:
                left_out.append(name)
                break
            chosen.setdefault(key_of(target.features), target)
    return list(chosen.values()), left_out


def _find_donors(name: str, candidates: Sequence[CostTarget]) -> Iterator[CostTarget]:
    """Return a candidate for each value of a feature; for numbers for the lowest and the highest."""
    by_value = {candidate.features[name]: candidate for candidate in reversed(candidates)}
    numbers = [value for value in by_value if isinstance(value, float)] if name in NUMBERS else []
    between = set(numbers) - {min(numbers), max(numbers)} if numbers else set()
    yield from (donor for value, donor in by_value.items() if value not in between)


def _transplant(base: CostTarget, donor: CostTarget, name: str) -> CostTarget:
    part = name.partition(".")[0]
    changed = base.recipe.model_copy(update={part: getattr(donor.recipe, part)})
    try:
        recipe = read_recipe(changed.model_dump())
    except UserError:
        return CostTarget(donor.recipe, donor.level)
    return CostTarget(recipe, donor.level if name == LEVEL else base.level)


def choose_checks(
    candidates: Sequence[CostTarget], measured: Sequence[CostTarget], count: int = CHECKS
) -> list[CostTarget]:
    """Return random candidates that were not measured."""
    known = {key_of(target.features) for target in measured}
    others = [target for target in candidates if key_of(target.features) not in known]
    return [replace(target, kind="check") for target in random.Random(0).sample(others, min(count, len(others)))]
