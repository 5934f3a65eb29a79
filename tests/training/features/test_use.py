"""A training on stored features gives the scores of a training on images."""

from __future__ import annotations

import logging

import pytest
import torch

from training.data.files.pixel_store import LIMIT_VARIABLES
from training.features.use import find_obstacle
from training.train import train

OFF = LIMIT_VARIABLES["features"]
MILESTONES = {"unfreeze": {"level": "last", "milestones": [1, 2]}, "epochs": 3}
AUGMENTED = {"unfreeze": {"level": "most"}, "augmentation": {"policy": "affine_colour"}}

# Each with the share of the images that starts at features, in each epoch: 64 images to train and 80 to validate.
VAL = 80 / 144
LEVELS = {
    "last": ({"unfreeze": {"level": "last"}}, [1.0, 1.0]),
    "attentive": (
        {
            "unfreeze": {"level": "last"},
            "attention_pooling": {"heads": 4},
            "preprocessing": {"image_size": 64},
            "optimizer": {"name": "momentum", "lr": 0.01},
        },
        [1.0, 1.0],
    ),
    "most": ({"unfreeze": {"level": "most"}}, [1.0, 1.0]),
    "middle": ({"unfreeze": {"level": "middle"}, "optimizer": {"name": "momentum", "lr": 0.01}}, [1.0, 1.0]),
    "first": ({"unfreeze": {"level": "first"}}, [0.0, 0.0]),
    "norm_bias": ({"unfreeze": {"level": "norm_bias"}}, [0.0, 0.0]),
    "full": ({}, [0.0, 0.0]),
    "milestones": (MILESTONES, [1.0, 1.0, 0.0]),
    # At a higher rate the whole model enlarges the differences of rounding.
    "to full": (
        {
            "unfreeze": {"level": "last", "milestones": [1], "to_full": True},
            "optimizer": {"name": "momentum", "lr": 0.001},
        },
        [1.0, 0.0],
    ),
    "a new rate": ({"unfreeze": {"level": "last", "milestones": [1], "milestone_lr": "auto"}}, [1.0, 1.0]),
    "augmented": (AUGMENTED, [VAL, VAL]),
    "mixed": ({"unfreeze": {"level": "last"}, "mixup": {"alpha": 0.4}}, [VAL, VAL]),
    "erased": ({"unfreeze": {"level": "most"}, "random_erasing": {"probability": 0.5}}, [VAL, VAL]),
    "flipped": ({"unfreeze": {"level": "last"}, "flip": {"probability": 0.5}}, [VAL, VAL]),
    "cropped": ({"unfreeze": {"level": "last"}, "random_crop": {"name": "padded"}}, [VAL, VAL]),
    "few images of many": (
        {"unfreeze": {"level": "last"}, "data": {"name": "digits", "train_size": 64, "epoch_size": 20}},
        [80 / 100] * 2,
    ),
    "all images in two epochs": (
        {"unfreeze": {"level": "last"}, "data": {"name": "digits", "train_size": 64, "epoch_size": 32}},
        [1.0, 1.0],
    ),
}
# Techniques that use the model, the batches or the weights in a way of their own.
TECHNIQUES = {
    "ema": {"averaging": {"name": "ema"}},
    "swa": {"averaging": {"name": "swa", "start": 0.1}},
    "snapshots": {"snapshots": {"members": 2}, "schedule": {"name": "cosine_restarts", "cycles": 2}, "epochs": 4},
    "sam": {"sam": {"name": "sam"}},
    "head dropout": {"head_dropout": {"rate": 0.3}},
    "drop path": {"drop_path": {"rate": 0.3}},
    "sampler": {"class_balance": {"name": "sampler"}},
    "accumulation": {"accumulation": {"batches": 3}},
    "checkpointing": {"activation_checkpointing": {"enabled": True}},
    "layout": {"channels_last": {"enabled": True}},
    "bf16": {"precision": {"mode": "bf16-mixed"}},
    "larger evaluation": {"evaluation_size": {"factor": 1.5}},
    "found rate": {"optimizer": {"name": "momentum", "lr": "auto"}},
    "loaded one by one": {"augmentation": {"policy": "none", "backend": "albumentations"}},
}
OBSTACLES = {
    "adapt_statistics": {"unfreeze": {"level": "last", "adapt_statistics": True}},
    "lora": {"lora": {"rank": 2}},
    "flip_average": {"flip_average": {"enabled": True}},
    "compilation": {"compilation": {"backend": "aot_eager"}},
    "data_parallel": {"data_parallel": {"devices": 2}},
    "64-true": {"precision": {"mode": "64-true"}},
}


def scores(run):
    return [
        {name: value for name, value in epoch.items() if name != "cached_feature_fraction"} for epoch in run.metrics
    ]


def assert_same(one, other, tolerance=1e-5):
    assert [report.steps[-1][0] for report in one.outcome.reports] == [r.steps[-1][0] for r in other.outcome.reports]
    for first, second in zip(scores(one), scores(other), strict=True):
        assert first == pytest.approx(second, rel=tolerance, abs=tolerance)


@pytest.fixture
def without(monkeypatch, fit):
    """Train without features."""

    def run(**fields):
        with monkeypatch.context() as patch:
            patch.setenv(OFF, "0")
            return fit(**fields)

    return run


@pytest.mark.parametrize("name", LEVELS)
def test_a_training_on_features_has_the_scores_of_one_on_images(name, fit, without):
    fields, shares = LEVELS[name]
    run = fit(**fields)
    assert [epoch["cached_feature_fraction"] for epoch in run.metrics] == pytest.approx(shares)
    assert_same(run, without(**fields))


@pytest.mark.parametrize("name", TECHNIQUES)
def test_techniques_work_on_features_as_on_images(name, fit, without):
    fields = {"unfreeze": {"level": "most"}, **TECHNIQUES[name]}
    run, other = fit(**fields), without(**fields)
    assert {epoch["cached_feature_fraction"] for epoch in run.metrics} == {1.0}
    assert {epoch["cached_feature_fraction"] for epoch in other.metrics} == {0.0}
    assert_same(run, other)


@pytest.mark.parametrize("word", OBSTACLES)
def test_a_recipe_that_changes_the_frozen_part_gets_no_features(word, tiny_recipe):
    assert find_obstacle(tiny_recipe(unfreeze={"level": "last"})) is None
    assert word in find_obstacle(tiny_recipe(**{"unfreeze": {"level": "last"}, **OBSTACLES[word]}))


@pytest.mark.parametrize("milestones", [[], [1], [1, 2]])
def test_a_resumed_training_on_features_ends_like_an_uninterrupted_one(milestones, fit, load_weights):
    fields = {"unfreeze": {"level": "last", "milestones": milestones}, "epochs": 4}
    whole = fit(**fields)
    for epoch in (1, 2):
        stopped = fit(on_report=lambda report, last=epoch: report.epoch < last, **fields)
        resumed = fit(folder=stopped.folder, **fields)
        assert resumed.metrics == whole.metrics
        weights = load_weights(whole.folder)
        assert [
            (name, value)
            for name, value in load_weights(resumed.folder).items()
            if not torch.equal(weights[name], value)
        ] == []


def test_a_training_that_began_on_images_continues_on_features(fit, without):
    fields = {"unfreeze": {"level": "most"}, "epochs": 3}
    stopped = without(on_report=lambda report: report.epoch < 2, **fields)
    resumed = fit(folder=stopped.folder, **fields)
    assert [epoch["cached_feature_fraction"] for epoch in resumed.metrics] == [0.0, 0.0, 1.0]
    assert_same(resumed, without(**fields))


def test_a_resumed_training_uses_the_weights_of_its_checkpoint(fit, tmp_path):
    weights = tmp_path / "start.pt"
    fields = {"backbone": {"name": "test_resnet", "weights": str(weights)}, "unfreeze": {"level": "last"}}
    start = torch.load(fit(epochs=1, seed=1).folder / "best.ckpt", weights_only=True)["state_dict"]
    torch.save(start, weights)
    whole = fit(**fields, epochs=2)
    stopped = fit(on_report=lambda report: False, **fields, epochs=2)
    torch.save({name: value if value.ndim > 1 else value + 1 for name, value in start.items()}, weights)
    assert fit(folder=stopped.folder, **fields, epochs=2).metrics == whole.metrics


def test_the_checkpoints_have_all_of_a_model_with_random_weights(fit, without, load_weights):
    run, other = fit(unfreeze={"level": "last"}), without(unfreeze={"level": "last"})
    for which in ("last", "best"):
        ours, theirs = load_weights(run.folder, which), load_weights(other.folder, which)
        assert ours.keys() == theirs.keys()
        assert [
            (name, value) for name, value in ours.items() if not torch.allclose(value, theirs[name], atol=1e-6)
        ] == []


def test_a_measurement_of_the_speed_computes_everything(tiny_recipe, tmp_path):
    outcome = train(tiny_recipe(unfreeze={"level": "last"}), tmp_path, val_images=40)
    assert [report.metrics["cached_feature_fraction"] for report in outcome.reports] == [0.0, 0.0]


def test_features_above_half_of_the_limit_are_not_stored(fit, monkeypatch, caplog):
    monkeypatch.setenv(OFF, "1")
    caplog.set_level(logging.INFO)
    backbone = {"name": "test_resnet", "weights": "none"}
    run = fit(unfreeze={"level": "most"}, backbone=backbone, preprocessing={"image_size": 96})
    assert [epoch["cached_feature_fraction"] for epoch in run.metrics] == [0.0, 0.0]
    assert "validation starts at the images: 2 MB are more than half of TECHNIQUE_SEARCH_FEATURES_MB=1." in caplog.text


def test_a_resumed_training_decides_on_features_as_at_its_start(fit):
    data = {"name": "digits", "train_size": 64, "epoch_size": 24}  # three epochs draw 72 images
    fields = {"unfreeze": {"level": "last"}, "data": data, "epochs": 3}
    stopped = fit(on_report=lambda report: report.epoch < 2, **fields)
    resumed = fit(folder=stopped.folder, **fields)
    assert [epoch["cached_feature_fraction"] for epoch in resumed.metrics] == [1.0, 1.0, 1.0]


def test_a_training_on_features_prepares_no_images(fit, monkeypatch):
    fields = {"unfreeze": {"level": "last"}, "preprocessing": {"image_size": 48}}
    first = fit(**fields)
    prepared = []
    monkeypatch.setattr("training.data.pipelines.tensor_images.fit_all", lambda *given: prepared.append(given))
    monkeypatch.setattr("training.data.pipelines.loaders.fit_all", lambda *given: prepared.append(given))
    assert fit(**fields).metrics == first.metrics
    assert not prepared
