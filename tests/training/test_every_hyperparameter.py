"""A hyperparameter that is silently not applied is the worst bug of this field: every one must change the training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import BaseModel

import training.train
from training.contract.specs import Digits
from training.data.sources.load_data import load_data
from training.recipe import Recipe, read_recipe

BASE: dict[str, Any] = {
    "data": {"name": "digits", "train_size": 40},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "epochs": 2,
    "batch_size": 8,
    "optimizer": {"name": "sgd"},
}
WARM_UP = {"warmup_epochs": 1.0}
RESIZED = {"image_size": 36, "crop": 1.0}
TIMM = ("nadamw", "lion", "lamb", "adan", "muon")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "adafactor", "adam8bit", *TIMM)
UNEVEN = {"name": "digits", "train_size": 45}  # not as many of each class
POLICIES = ("none", "small_images", "trivial_augment", "rand_augment", "augmix")
SCHEDULES = ("constant", "cosine", "cosine_restarts", "linear", "trapezoid")

# A second legal value of every field and, if it needs them to have an effect, other fields in and beside its part.
SECOND: dict[str, Any] = {
    "data[digits].train_size": 30,
    "data[digits].split_seed": 1,
    "data[digits].epoch_size": 24,
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
    "unfreeze.level": "last",
    "lora.rank": (8, {"rank": 2}),
    "lora.alpha": (2.0, {"rank": 2}),
    "drop_path.rate": 0.5,
    "augmentation[small_images].translate": 0.3,
    "augmentation[small_images].scale": 0.4,
    "augmentation[small_images].rotate": 45.0,
    "augmentation[small_images].rgb_shift": 60.0,
    "augmentation[small_images].brightness": 0.5,
    "augmentation[small_images].contrast": 0.5,
    "augmentation[small_images].probability": 0.9,
    "random_crop[padded].padding": 0.25,
    "random_crop[resized].min_area": 0.5,
    "flip.probability": 0.5,
    **{
        f"augmentation[{name}].backend": ("tensor", {"backend": "albumentations"})
        for name in ("small_images", "crop_flip")
    },
    **{
        f"augmentation[{name}].backend": ("dali", {"backend": "albumentations"})
        for name in ("trivial_augment", "rand_augment")
    },
    "augmentation[augmix].severity": 8,
    "augmentation[augmix].mixture_width": 1,
    "augmentation[augmix].alpha": 0.2,
    "augmentation[rand_augment].num_ops": 1,
    "augmentation[rand_augment].magnitude": 20,
    "augmentation[crop_flip].min_area": 0.5,
    "augmentation[crop_flip].flip": 1.0,
    "random_erasing.probability": 0.5,
    "random_erasing.max_area": (0.1, {"probability": 0.5}),
    "mixup.alpha": 0.4,
    "cutmix.alpha": 0.4,
    "fmix.alpha": 0.4,
    "fmix.decay": (2.0, {"alpha": 0.4}),
    "mixing.probability": (0.5, {}, {"mixup": {"alpha": 0.4}}),
    "class_balance[weights].power": (1.0, {}, {"data": UNEVEN}),
    "loss[focal].gamma": 1.0,
    "loss[poly].epsilon": 2.0,
    "loss[logit_adjusted].tau": (2.0, {}, {"data": UNEVEN}),
    "label_smoothing.alpha": 0.1,
    **{f"optimizer[{name}].lr": 0.02 for name in OPTIMIZERS},
    **{f"optimizer[{name}].weight_decay": 0.1 for name in OPTIMIZERS},
    **{f"optimizer[{name}].momentum": 0.5 for name in ("momentum", "nesterov", "muon")},
    **{
        f"optimizer[{name}].{beta}": 0.5
        for name in ("adam", "adamw", "adam8bit", *TIMM[:4])
        for beta in ("beta1", "beta2")
    },
    "optimizer[adan].beta3": 0.5,
    **{f"schedule[{name}].warmup_epochs": 0.5 for name in SCHEDULES},
    **{f"schedule[{name}].start_factor": (0.3, WARM_UP) for name in SCHEDULES},
    **{f"schedule[{name}].final_factor": 0.5 for name in SCHEDULES[1:]},
    "schedule[trapezoid].decay_share": 0.6,
    "schedule[cosine_restarts].cycles": 3,
    "schedule[cosine_restarts].cycle_factor": 3,
    "averaging[swa].start": (0.25, {"start": 0.5}, {"epochs": 4}),
    "averaging[swa].lr_factor": (0.5, {"start": 0.5}),
    "averaging[swa].annealing_epochs": (0.5, {"start": 0.5, "lr_factor": 0.5}),
    "averaging[ema].half_life": 0.2,
    "optimizer[rmsprop].alpha": 0.5,
    "optimizer[rmsprop].momentum": 0.5,
    "optimizer[adafactor].beta2_decay": -0.2,
    "optimizer[adafactor].clip": 2.0,
    "sharpness[sam].rho": 0.2,
    "sharpness[asam].rho": 1.0,
    "layer_decay.factor": 0.5,
    "head_rate.factor": 5.0,
    "no_decay.enabled": (True, {}, {"optimizer": {"name": "adamw"}}),
    "lr_scaling.rule": ("sqrt", {"rule": "linear"}),
    "lr_scaling.reference": (64, {"rule": "linear"}),
    "unfreeze.milestones": ([1], {"level": "last"}),
    "unfreeze.to_full": (True, {"level": "last", "milestones": [1]}),
    "unfreeze.milestone_lr": ("auto/3", {"level": "last", "milestones": [1]}),
    "accumulation.batches": 2,
    "accumulation.schedule": [[1, 2]],
    "gradient_clipping.value": 0.01,
    "gradient_clipping.algorithm": ("value", {"value": 0.01}),
    "precision.mode": "bf16-mixed",
}
# Values that another technique must allow.
BESIDE: dict[str, Any] = {"lora": {"unfreeze": {"level": "last"}}}
# These need files or a GPU, or change only the computation and not its result. Other tests cover them.
TESTED_ELSEWHERE = {
    "activation_checkpointing.enabled",
    "data_parallel.devices",
    "data_parallel.strategy",
    "data_parallel.sync_batch_norm",
    "channels_last.enabled",
    "flip_average.enabled",
    "compilation.backend",
    "cudnn_benchmark.enabled",
    "precision.float32",
    "precision.init_scale",
    "precision.growth_interval",
    *(f"data[{name}].root" for name in ("cifar10", "cifar100", "image_folder", "manifest")),
    *(f"data[{name}].skip_unreadable" for name in ("image_folder", "manifest")),
    "data[manifest].path",
    "augmentation[none].backend",
    "augmentation[augmix].backend",
    *(f"augmentation[file].{field}" for field in ("backend", "path", "pipeline")),
}


def is_shared(path: str) -> bool:
    """Return whether a field exists for all kinds of data; digits have only these."""
    name, _, field = path.rpartition(".")
    return name.startswith("data[") and name != "data[digits]" and field in Digits.model_fields


def list_fields(part: type[BaseModel] = Recipe, prefix: str = "") -> Iterator[str]:
    """List every field of every part, such as `optimizer[adam].lr` for one member; discriminators are left out."""
    for name, field in part.model_fields.items():
        parts = [kind for kind in (field.annotation, *get_args(field.annotation)) if is_part(kind)]
        if not parts:
            yield f"{prefix}{name}"
        for kind in parts:
            label = f"[{kind.model_fields[field.discriminator].default}]" if field.discriminator else ""
            inner = list_fields(kind, f"{prefix}{name}{label}.")
            yield from (
                path for path in inner if not field.discriminator or not path.endswith(f".{field.discriminator}")
            )


def is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


FIELDS = [path for path in list_fields() if not is_shared(path)]


def surround(path: str) -> dict[str, Any]:
    """Return the values of a recipe that contains this field's part."""
    part, _, _ = path.rpartition(".")
    name, _, member = part.partition("[")
    if not part:
        return dict(BASE)
    key = "policy" if name == "augmentation" else "name"
    kind = {key: member.rstrip("]")} if member else {}
    return {**BASE, **BESIDE.get(name, {}), name: {**BASE.get(name, {}), **kind}}


def vary(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two recipes that differ only in this field."""
    if path not in SECOND:
        pytest.fail(f"no second value known for {path}: add it to SECOND")
    second = SECOND[path]
    value, around, *beside = second if isinstance(second, tuple) else (second, {})
    first = {**surround(path), **(beside[0] if beside else {})}
    part, _, field = path.rpartition(".")
    if not part:
        return first, {**first, field: value}
    name = part.partition("[")[0]
    first[name] = {**first[name], **around}
    return first, {**first, name: {**first[name], field: value}}


@pytest.fixture(scope="module")
def weights_after():
    """Return the weights after training a recipe; each recipe is trained only once, with a short validation."""
    known: dict[str, torch.Tensor] = {}

    def load_little(spec):
        data = load_data(spec)
        return replace(data, val=data.val.select(np.arange(8)))

    def run(values: dict[str, Any]) -> torch.Tensor:
        recipe = read_recipe(values)
        key = recipe.model_dump_json()
        if key not in known:
            with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                patch.setattr(training.train, "load_data", load_little)
                assert training.train.train(recipe, Path(folder)).state == "completed"
                state = torch.load(Path(folder) / "last.ckpt", weights_only=True)["state_dict"]
            known[key] = torch.cat([value.double().flatten() for value in state.values()])
        return known[key]

    return run


def differ(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape != second.shape or not torch.equal(first, second)


@pytest.mark.parametrize("path", [path for path in FIELDS if path not in TESTED_ELSEWHERE])
def test_recipes_that_differ_in_one_hyperparameter_train_differently(path, weights_after):
    first, second = vary(path)
    assert differ(weights_after(first), weights_after(second))


@pytest.mark.parametrize(
    ("part", "key", "kinds"),
    [
        ("optimizer", "name", OPTIMIZERS),
        ("schedule", "name", SCHEDULES),
        ("random_crop", "name", ("none", "padded", "resized")),
        ("augmentation", "policy", POLICIES),
        ("class_balance", "name", ("none", "weights", "sampler")),
        ("loss", "name", ("cross_entropy", "bce", "focal", "poly", "logit_adjusted")),
        ("averaging", "name", ("none", "swa", "ema")),
        ("sharpness", "name", ("none", "sam", "asam")),
    ],
)
def test_no_two_kinds_train_in_the_same_way(part, key, kinds, weights_after):
    # At the same rate, because otherwise their defaults alone would make the difference.
    shared = {"lr": 0.02} if part == "optimizer" else {}
    beside = {"class_balance": {"data": UNEVEN}, "loss": {"data": UNEVEN}, "averaging": {"epochs": 5}}.get(part, {})
    after = {kind: weights_after({**BASE, **beside, part: {key: kind, **shared}}) for kind in kinds}
    for one, other in combinations(kinds, 2):
        assert differ(after[one], after[other]), (one, other)


def test_all_values_of_a_technique_with_names_train_differently(weights_after):
    for part, field, values in (
        ("unfreeze", "level", ("last", "most", "full")),
        ("precision", "mode", ("32-true", "bf16-mixed", "64-true")),
    ):
        after = [weights_after({**BASE, part: {field: value}}) for value in values]
        assert all(differ(one, other) for one, other in combinations(after, 2)), part


def test_the_same_recipe_trains_alike(weights_after):
    first = weights_after(BASE)
    with tempfile.TemporaryDirectory() as folder:
        training.train.train(read_recipe(BASE), Path(folder))
        again = torch.load(Path(folder) / "last.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(first, torch.cat([value.double().flatten() for value in again.values()]))


def test_every_known_field_is_one_of_a_recipe():
    assert set(SECOND) | TESTED_ELSEWHERE == set(FIELDS)
