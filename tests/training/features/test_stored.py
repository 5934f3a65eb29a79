"""Features are computed once per machine, and again where anything changes that they depend on."""

from __future__ import annotations

import logging

import pytest
import torch

from training.features.split import Split

BASE = {"unfreeze": {"level": "last"}, "backbone": {"name": "test_resnet", "weights": "none"}}
OTHER = {
    "weights": {"seed": 1},
    "images": {"data": {"name": "digits", "train_size": 64, "split_seed": 1}},
    "image size": {"preprocessing": {"image_size": 40}},
    "colours": {"preprocessing": {"mean": [0.4, 0.5, 0.6]}},
    "precision": {"precision": {"mode": "bf16-mixed"}},
    "level": {"unfreeze": {"level": "most"}},
}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    return tmp_path / "own"


@pytest.fixture
def count_computed(own_cache, fit, caplog):
    """Train, and return for how many parts the features were computed."""
    caplog.set_level(logging.INFO)

    def count(**fields):
        caplog.clear()
        assert fit(**{**BASE, "epochs": 1, **fields}).metrics[0]["cached_feature_fraction"] == 1.0
        return caplog.text.count("Computing the features of")

    return count


def test_a_second_training_reads_the_features_of_the_first(count_computed, own_cache):
    assert count_computed() == 2
    assert count_computed(optimizer={"name": "adamw", "lr": 0.01}, batch_size=32, label_smoothing={"alpha": 0.1}) == 0
    assert len([*own_cache.rglob("features/*.npy")]) == 2


@pytest.mark.parametrize("name", OTHER)
def test_features_are_computed_again_after_a_change_of(name, count_computed):
    assert count_computed() == 2
    assert count_computed(**OTHER[name]) == 2


def test_features_of_another_format_are_computed_again(count_computed, monkeypatch):
    assert count_computed() == 2
    monkeypatch.setattr("training.features.stored.FORMAT", 2)
    assert count_computed() == 2


def test_a_damaged_file_is_computed_again(count_computed, own_cache):
    assert count_computed() == 2
    for file in own_cache.rglob("features/*.npy"):
        file.write_bytes(file.read_bytes()[:100])
    assert count_computed() == 2


def test_a_frozen_part_that_draws_random_numbers_gets_no_features(own_cache, fit, monkeypatch):
    def compute(split, images):
        return torch.rand(len(images), 4)

    monkeypatch.setattr(Split, "compute_features", compute)
    assert fit(**BASE, epochs=1).metrics[0]["cached_feature_fraction"] == 0.0
