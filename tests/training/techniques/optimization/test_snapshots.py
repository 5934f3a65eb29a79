"""An ensemble of the weights at the minima of the learning rate."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from training.data.load_data import load_data
from training.errors import UserError
from training.evaluate import predict_part, restore_model
from training.model.ensemble import Ensemble, join_logits

CYCLES = {
    "epochs": 4,
    "schedule": {"name": "cosine_restarts", "cycles": 2},
    "optimizer": {"name": "momentum", "lr": 0.02},
}


def members_of(folder, load_weights):
    weights = load_weights(folder, "best")
    numbers = sorted({name.partition(".")[0] for name in weights})
    return [{k.partition(".")[2]: v for k, v in weights.items() if k.startswith(f"{n}.")} for n in numbers]


@pytest.fixture
def shorter(fit, load_weights):
    """The last weights of a plain training that is stopped after this many of its epochs."""

    def run(epochs):
        stopped = fit(**CYCLES, on_report=lambda report: report.epoch < epochs)
        return load_weights(stopped.folder)

    return run


def test_members_are_the_weights_at_the_minima_of_the_same_training(fit, shorter):
    run = fit(**CYCLES, snapshots={"members": 2})
    saved = torch.load(run.folder / "last.ckpt", weights_only=True)["callbacks"]["SnapshotKeeper"]["members"]
    assert len(saved) == 2
    for member, epochs in zip(saved, (2, 4), strict=True):
        expected = list(shorter(epochs).values())
        assert [(own, other) for own, other in zip(member, expected, strict=True) if not torch.equal(own, other)] == []


def test_the_score_is_that_of_the_mean_probability_of_the_members(fit, load_weights):
    run = fit(**CYCLES, snapshots={"members": 2}, metric="val_loss")
    report, recipe = run.outcome.reports[-1], run.outcome.recipe
    assert report.best_epoch == 4  # so the weights of the last epoch are kept
    parts = members_of(run.folder, load_weights)
    assert len(parts) == 2
    plain = recipe.model_copy(update={"snapshots": type(recipe.snapshots)()})
    val = load_data(recipe.data).val
    logits = [predict_part(restore_model(plain, weights, 10), val, recipe)[0] for weights in parts]
    mean = torch.stack([found.softmax(1) for found in logits]).mean(0)
    loss = F.nll_loss(mean.log(), torch.from_numpy(val.labels))
    assert report.metrics["val_loss"] == pytest.approx(float(loss), rel=1e-4)
    whole = restore_model(recipe, load_weights(run.folder, "best"), 10)
    assert isinstance(whole, Ensemble)
    assert torch.allclose(predict_part(whole, val, recipe)[0].softmax(1), mean, atol=1e-6)


def test_the_weights_train_as_without_it_and_the_score_stays_between_two_minima(fit, load_weights):
    plain, kept = fit(**CYCLES), fit(**CYCLES, snapshots={"members": 2})
    assert [m["train_loss"] for m in plain.metrics] == [m["train_loss"] for m in kept.metrics]
    ours, theirs = load_weights(plain.folder), load_weights(kept.folder)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    losses = [m["val_loss"] for m in kept.metrics]
    assert losses[0] == plain.metrics[0]["val_loss"]
    assert losses[1] == losses[2] != losses[3]


def test_only_the_last_minima_are_kept_and_adapters_are_merged(fit, load_weights):
    lora = {"lora": {"rank": 2}, "unfreeze": {"level": "last"}}
    fields = {**CYCLES, **lora, "schedule": {"name": "cosine_restarts", "cycles": 4}, "snapshots": {"members": 2}}
    run = fit(**fields)
    saved = torch.load(run.folder / "last.ckpt", weights_only=True)["callbacks"]["SnapshotKeeper"]["members"]
    assert len(saved) == 2
    model = restore_model(run.outcome.recipe, load_weights(run.folder, "best"), 10)
    assert isinstance(model, Ensemble)


def test_logits_of_one_model_are_unchanged_and_two_give_the_mean_probability():
    logits = torch.randn(2, 3, 4)
    alone = logits[0]
    assert join_logits([alone]) is alone
    assert torch.allclose(join_logits(list(logits)).softmax(1), logits.softmax(2).mean(0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"snapshots": {"members": 1}, **CYCLES}, "an ensemble has at least 2 members"),
        ({"snapshots": {"members": 2}}, "needs the minima of schedule.name=cosine_restarts"),
        ({"snapshots": {"members": 3}, **CYCLES}, "schedule.cycles=2 has only so many minima"),
        ({"snapshots": {"members": 2}, **CYCLES, "averaging": {"name": "ema"}}, "would replace the average"),
        ({"snapshots": {"members": 2}, **CYCLES, "data_parallel": {"devices": 2}}, "works on one device"),
    ],
)
def test_recipes_in_which_it_cannot_work_are_refused(tiny_recipe, fields, words):
    with pytest.raises(UserError, match=words):
        tiny_recipe(**fields)
