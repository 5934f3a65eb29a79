"""Classifier retraining: what moves in the last epochs, on which images, at which rates, and what rare classes gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import training.train
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.data.pipelines.sampling import EpochSampler
from training.errors import UserError
from training.resolve import resolve_recipe
from training.small_trainings import is_legal
from training.train import train

RETRAINED = {"epochs": 4, "classifier_retraining": {"epochs": 2}}


@pytest.fixture
def weights_after(fit, load_weights, tmp_path):
    """Return the weights after each epoch of a training."""

    def run(**fields):
        after = []
        fit(folder=tmp_path, on_report=lambda report: after.append(load_weights(tmp_path)) or True, **fields)
        return after

    return run


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "adamw", "weight_decay": 0.1},
        {"name": "momentum", "weight_decay": 0.1},
        pytest.param({"name": "muon"}, marks=pytest.mark.slow),
        pytest.param({"name": "adan"}, marks=pytest.mark.slow),
        pytest.param({"name": "adam8bit"}, marks=pytest.mark.slow),
        pytest.param({"name": "prodigy"}, marks=pytest.mark.slow),
    ],
)
def test_only_the_head_moves_in_the_last_epochs(optimizer, weights_after):
    _, second, third, fourth = weights_after(**RETRAINED, optimizer=optimizer, accumulation={"batches": 3})
    for name, value in second.items():
        assert torch.equal(value, third[name]) != name.startswith("fc."), name
        assert torch.equal(third[name], fourth[name]) != name.startswith("fc."), name


def test_the_head_starts_again_without_what_the_optimizer_has_of_the_one_before(weights_after, tmp_path):
    still = {"name": "adamw", "lr": 1e-12}  # the weights stay as they are drawn
    first, second, third, fourth = [after["fc.weight"] for after in weights_after(**RETRAINED, optimizer=still)]
    assert torch.allclose(first, second)
    assert torch.allclose(third, fourth)
    assert abs(np.corrcoef(first.flatten(), third.flatten())[0, 1]) < 0.1
    [optimizer] = torch.load(tmp_path / "last.ckpt", weights_only=True)["optimizer_states"]
    assert {int(state["step"]) for state in optimizer["state"].values()} == {8}, "each part has trained in two epochs"


def test_the_last_epochs_load_every_class_equally_often(tiny_recipe):
    recipe = tiny_recipe(**RETRAINED, data={"name": "digits", "train_size": 300})
    data = load_data(recipe.data)
    kept = np.sort(np.concatenate([np.flatnonzero(data.train.labels == c)[: 3 * c + 2] for c in range(10)]))
    data = replace(data, train=data.train.select(kept))
    loaders = make_loaders(data, resolve_recipe(recipe, data, "cpu"), workers=0)
    for epoch in range(4):
        loaders.train_batches.sampler.set_epoch(epoch)
        counts = np.bincount(torch.cat([labels for _, labels in loaders.train]), minlength=10)
        if epoch < 2:
            assert counts.tolist() == np.bincount(data.train.labels).tolist()
        else:
            assert np.ptp(counts) <= 1


def test_balanced_epochs_are_those_of_a_balanced_sampler():
    labels = np.repeat([0, 1], [9, 4])
    mixed, balanced = EpochSampler(13, None, 0, labels, 1, 2), EpochSampler(13, None, 0, labels)
    for epoch in range(4):
        mixed.set_epoch(epoch)
        balanced.set_epoch(epoch)
        assert (list(mixed) == list(balanced)) == (epoch >= 2)


def test_the_schedule_ends_before_the_retraining_and_begins_again(tiny_recipe, tmp_path):
    fields = {"schedule": {"name": "cosine"}, "optimizer": {"name": "sgd", "lr": 0.01}}
    rates = log_rates(tiny_recipe(**RETRAINED, **fields), tmp_path / "retrained")
    half = log_rates(tiny_recipe(epochs=2, **fields), tmp_path / "half")
    assert rates == pytest.approx([*half, *half])


def log_rates(recipe, folder):
    """The learning rate of each optimizer step of a training."""
    folder.mkdir()
    return [rate for report in train(recipe, folder).reports for _, rate, _ in report.steps]


@pytest.mark.slow
def test_rare_classes_gain_on_a_long_tail(fit, monkeypatch):
    load = training.train.load_data

    def load_long_tail(spec):
        data = load(spec)
        counts = [100, 100, 100, 100, 100, 3, 3, 3, 3, 3]
        kept = np.concatenate([np.flatnonzero(data.train.labels == c)[:count] for c, count in enumerate(counts)])
        return replace(data, train=data.train.select(np.sort(kept)))

    monkeypatch.setattr(training.train, "load_data", load_long_tail)
    recipe = {
        "data": {"name": "digits"},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "epochs": 6,
        "schedule": {"name": "cosine"},
        "optimizer": {"name": "adamw", "lr": 0.002},
        "score": "last",
    }
    plain = fit(**recipe).metrics[-1]["val_balanced_accuracy"]
    retrained = fit(**recipe, classifier_retraining={"epochs": 3}).metrics[-1]["val_balanced_accuracy"]
    assert retrained > plain + 0.05


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epochs": 2}, "leaves nothing of epochs=2"),
        ({"unfreeze": {"level": "last"}}, "trains the head alone in all epochs"),
        ({"unfreeze": {"level": "last", "milestones": [2]}}, r"freezes the backbone before unfreeze.milestones=\[2\]"),
        ({"class_balance": {"name": "sampler"}}, "class_balance.name=sampler would correct the same imbalance twice"),
        ({"class_balance": {"name": "weights"}}, "class_balance.name=weights would correct the same imbalance twice"),
        ({"loss": {"name": "logit_adjusted"}}, "logit_adjusted would correct the same imbalance twice"),
        ({"averaging": {"name": "ema"}}, "averaging would average it with the one before"),
        ({"optimizer": {"name": "schedule_free"}}, "optimizer.name=schedule_free would average it"),
        (
            {"snapshots": {"members": 2}, "schedule": {"name": "cosine_restarts", "cycles": 2}},
            "snapshots would average it",
        ),
        ({"data_parallel": {"devices": 2, "strategy": "fsdp"}}, "use ddp"),
    ],
)
def test_what_cannot_be_combined_is_refused(fields, words, tiny_recipe):
    with pytest.raises(UserError, match=f"classifier_retraining.epochs=2.*{words}"):
        tiny_recipe(**{**RETRAINED, **fields})


def test_adapters_train_before_the_head_is_retrained(weights_after):
    assert is_legal({**RETRAINED, "lora": {"rank": 2}, "unfreeze": {"level": "last"}})
    after = weights_after(**RETRAINED, lora={"rank": 2}, unfreeze={"level": "last"})
    adapters = [name for name in after[0] if "lora_B" in name]
    assert any(not torch.equal(after[0][name], after[1][name]) for name in adapters)
    assert [name for name in adapters if not torch.equal(after[1][name], after[3][name])] == []
