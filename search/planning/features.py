"""The choices of a recipe that decide what it costs, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from training.recipe import Recipe

Features = Mapping[str, str | float]

LEVEL = "unfreeze.level"
NUMBERS = ("preprocessing.image_size", "batch_size", "lora.rank")  # the logarithm of the cost is linear in theirs
FIELDS = (
    "backbone.name",
    "preprocessing.image_size",
    LEVEL,
    "batch_size",
    "precision.mode",
    "precision.float32",
    "sharpness.name",
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


def describe_features(recipe: Recipe, level: str) -> dict[str, str | float]:
    """Return the features of a recipe while it trains at a level of unfreeze."""
    flat = recipe.flat() | {LEVEL: level}
    found = {name: _read(name, flat[name]) for name in FIELDS if name in flat}
    on = {type(technique) for technique in recipe.techniques()}
    return found | {name: str(type(getattr(recipe, name, None)) in on) for name in Recipe.own_techniques()}


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
