"""A hyperparameter that is silently not applied is the worst bug of this field: every one must change the training."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from training.data.sources.digits import Digits
from training.recipe import Recipe, read_recipe
from training.schema import slot_of
from training.small_trainings import BASE, read_all_weights, train_briefly, vary_field
from training.train import train

RESIZED = {"image_size": 36, "crop": 1.0}

# A second value for each field of a part that is not a technique and, if it needs them, other fields of its part.
SECOND: dict[str, Any] = {
    "data[digits].train_size": 30,
    "data[digits].split_seed": 1,
    "data[digits].split_test": False,
    "data[digits].epoch_size": 16,
    "preprocessing.image_size": 40,
    "preprocessing.crop": (0.8, RESIZED),
    "preprocessing.interpolation": ("nearest", RESIZED),
    "preprocessing.mean": [0.1, 0.2, 0.3],
    "preprocessing.std": [0.1, 0.2, 0.3],
    "backbone.source": ("torchvision", {"name": "resnet18"}),
    "backbone.name": "test_efficientnet",
    "backbone.weights": "letters",
    "epochs": 3,
    "seed": 1,
    "batch_size": 10,
}
# These need files or a GPU, or do nothing. Other tests cover them.
TESTED_ELSEWHERE = {
    "preprocessing.crop_mode",  # digits are square
    "precision.float32",
    "precision.init_scale",
    "precision.growth_interval",
    *(f"data[{name}].root" for name in ("cifar10", "cifar100", "image_folder", "manifest", "parquet", "webdataset")),
    "data[image_folder].layout",  # tests/training/data/sources/test_folder_layout.py
    *(f"data[{name}].skip_unreadable" for name in ("image_folder", "manifest", "parquet", "webdataset")),
    *(f"data[parquet].{column}_column" for column in ("image", "label")),
    "data[manifest].path",
    "backbone.code",
    *(f"distillation.{field}" for field in ("teacher", "weight", "temperature")),
    "augmentation[none].backend",
    "augmentation[augmix].backend",
    "augmentation[three_augment].backend",
    *(f"augmentation[file].{field}" for field in ("backend", "path", "pipeline")),
}


def is_shared(path: str) -> bool:
    """Return whether a field exists for all kinds of data; digits have only these."""
    name, _, field = path.rpartition(".")
    return name.startswith("data[") and name != "data[digits]" and field in Digits.model_fields


def list_fields() -> Iterator[str]:
    """List every field of every part that changes weights; `optimizer[adam].lr` belongs to one kind of the part."""
    for name in Recipe.model_fields:
        slot = slot_of(Recipe, name)
        if not slot.parts:
            yield name
        kinds = slot.members if slot.discriminator else dict(zip([""], slot.parts, strict=False))
        for kind, part in kinds.items():
            if part.changes_weights:
                label = f"[{kind}]" if kind else ""
                yield from (f"{name}{label}.{field}" for field in part.model_fields if field != slot.discriminator)


FIELDS = [path for path in list_fields() if not is_shared(path)]


def vary(path: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pairs of recipes that differ only in this field."""
    name, kind, field = re.fullmatch(r"(\w+)(?:\[(\w+)\])?(?:\.(\w+))?", path).groups()
    if path in SECOND:
        value, around = SECOND[path] if isinstance(SECOND[path], tuple) else (SECOND[path], {})
        first = {**BASE, name: {**BASE.get(name, {}), **around}} if field else BASE
        yield first, {**first, name: {**first[name], field: value} if field else value}
        return
    slot = slot_of(Recipe, name)
    part = slot.members[kind] if kind else slot.parts[0]
    yield from vary_field(name, field, part, {slot.discriminator: kind} if kind else {})


@pytest.fixture(scope="module")
def weights_after():
    """Return the weights after training a recipe; each recipe is trained only once, with a short validation."""
    known: dict[str, torch.Tensor] = {}

    def run(values: dict[str, Any]) -> torch.Tensor:
        recipe = read_recipe(values)
        key = recipe.model_dump_json()
        if key not in known:
            with tempfile.TemporaryDirectory() as folder:
                assert train_briefly(recipe, Path(folder)).state == "completed"
                known[key] = read_all_weights(Path(folder))
        return known[key]

    return run


@pytest.mark.parametrize("path", [path for path in FIELDS if path not in TESTED_ELSEWHERE])
def test_recipes_that_differ_in_one_hyperparameter_train_differently(path, weights_after):
    pairs = list(vary(path))
    assert pairs, f"{path} needs a second value in its own file: Field(..., examples=[...]), or another of its examples"
    assert not all(torch.equal(weights_after(first), weights_after(second)) for first, second in pairs)


def kinds_of(part: str) -> list[str]:
    return [kind for kind in slot_of(Recipe, part).members if kind != "file"]


@pytest.mark.parametrize(
    "part", [name for name in Recipe.model_fields if slot_of(Recipe, name).discriminator and name != "data"]
)
def test_no_two_kinds_train_in_the_same_way(part, weights_after):
    # At the same rate, because otherwise their defaults alone would make the difference.
    shared = {"lr": 0.02} if part == "optimizer" else {}
    key = slot_of(Recipe, part).discriminator
    after = {kind: weights_after({**BASE, part: {key: kind, **shared}}) for kind in kinds_of(part)}
    for one, other in combinations(after, 2):
        assert not torch.equal(after[one], after[other]), (one, other)


def test_all_values_of_a_technique_with_names_train_differently(weights_after):
    for part, field, values in (
        ("unfreeze", "level", ("last", "most", "first", "middle", "norm_bias", "full")),
        ("precision", "mode", ("32-true", "bf16-mixed", "64-true")),
    ):
        after = [weights_after({**BASE, part: {field: value}}) for value in values]
        assert not any(torch.equal(one, other) for one, other in combinations(after, 2)), part


def test_the_same_recipe_trains_alike(weights_after):
    first = weights_after(BASE)
    with tempfile.TemporaryDirectory() as folder:
        train(read_recipe(BASE), Path(folder))
        assert torch.equal(first, read_all_weights(Path(folder)))


def test_every_known_field_is_one_of_a_recipe():
    assert set(SECOND) | TESTED_ELSEWHERE <= set(FIELDS)
