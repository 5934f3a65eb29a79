"""The values for `auto` learning rates and batch sizes, and that finding them changes nothing else."""

from __future__ import annotations

import gc
import logging
import math
import weakref

import pytest
import torch

import training.loop.auto_values.finders as finders
import training.loop.auto_values.range_test as range_test
from training.callbacks.weight_average import WeightAverage
from training.errors import UserError
from training.loop.auto_values.range_test import list_rates, suggest
from training.recipe import read_recipe
from training.resolve import resolve_recipe
from training.techniques.compute.cudnn_benchmark import CudnnBenchmark
from training.train import Resources, train

AUTO = {
    "backbone": {"name": "test_resnet", "weights": "letters"},
    "optimizer": {"name": "momentum", "lr": "auto"},
    "schedule": {"name": "cosine", "warmup_epochs": 1.0},
    "mixup": {"alpha": 0.2},  # random draws in every step
    "layer_decay": {"factor": 0.8},
    "accumulation": {"schedule": [[1, 2]]},
}


def test_a_technique_may_set_limits_of_the_trainer_that_a_range_test_leaves_out(fit, monkeypatch):
    limits = {"limit_val_batches": 1.0, "max_steps": 100_000}
    monkeypatch.setattr(CudnnBenchmark, "apply", lambda self, setup: setup.set_trainer(**limits))
    assert fit(**AUTO, cudnn_benchmark={"enabled": True}).state == "completed"


def by_hand(rate):
    return {**AUTO, "optimizer": {"name": "momentum", "lr": rate}}


def test_a_found_rate_gives_the_same_weights_as_the_same_rate_in_the_recipe(fit, load_weights):
    state = torch.get_rng_state()
    found = fit(**AUTO)
    assert torch.equal(state, torch.get_rng_state())
    rate = found.outcome.recipe.optimizer.lr
    assert 1e-4 < rate < 1
    again = fit(**by_hand(rate))
    assert found.metrics == again.metrics
    for which in ("last", "best"):
        first, second = (load_weights(run.folder, which) for run in (found, again))
        assert [name for name in first if not torch.equal(first[name], second[name])] == []
    # The exported recipe has no auto.
    assert torch.load(found.folder / "best.ckpt", weights_only=True)["recipe"]["optimizer"]["lr"] == rate
    assert max(rate for report in found.outcome.reports for _, rate, _ in report.steps) == pytest.approx(rate, rel=0.3)


def test_a_resumed_training_does_not_search_again(fit, load_weights, tmp_path, monkeypatch):
    whole = fit(**AUTO)
    fit(folder=tmp_path, **AUTO, on_report=lambda report: False)
    monkeypatch.setattr(finders, "run_range_test", lambda *_: pytest.fail("the rate is known"))
    resumed = fit(folder=tmp_path, **AUTO)
    assert resumed.outcome.recipe == whole.outcome.recipe
    ours, theirs = load_weights(tmp_path), load_weights(whole.folder)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert fit(folder=tmp_path, **AUTO).outcome.recipe == whole.outcome.recipe  # completed, and started again
    with pytest.raises(UserError, match=r"holds a training with optimizer\.lr=auto, not 0\.5"):
        fit(folder=tmp_path, **by_hand(0.5))


@pytest.mark.parametrize(("asked", "used"), [("auto", 0.06), ("auto/3", 0.02), ("auto*3", 0.18)])
def test_a_third_or_three_times_the_found_rate_can_be_used(asked, used, fit, monkeypatch):
    monkeypatch.setattr(finders, "run_range_test", lambda *_: 0.06)
    run = fit(optimizer={"name": "sgd", "lr": asked}, epochs=1)
    assert run.outcome.recipe.optimizer.lr == run.metrics[0]["lr"] == used


AGAIN = {
    **AUTO,
    "optimizer": {"name": "momentum", "lr": 0.001},
    "schedule": {"name": "constant"},
    "unfreeze": {"level": "last", "milestones": [1], "milestone_lr": "auto/3"},
    "averaging": {"name": "ema"},
}


def test_at_a_milestone_the_rate_is_found_again_and_a_resume_keeps_it(fit, load_weights, tmp_path):
    whole = fit(**AGAIN, epochs=3)
    rates = [metrics["lr"] for metrics in whole.metrics]
    assert rates[0] == 0.001
    assert rates[1] == rates[2] == pytest.approx(0.01, rel=0.9)
    assert rates[1] != rates[0]
    for epoch in (1, 2):
        fit(folder=tmp_path, **AGAIN, epochs=3, on_report=lambda report, stop=epoch: report.epoch < stop)
    assert fit(folder=tmp_path, **AGAIN, epochs=3).metrics == whole.metrics
    ours, theirs = load_weights(tmp_path), load_weights(whole.folder)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_a_rate_found_at_a_milestone_changes_nothing_but_the_rate(fit, load_weights, monkeypatch):
    monkeypatch.setattr(finders, "run_range_test", lambda *_: 0.003)  # a third of this is the rate in the recipe
    kept = fit(**{**AGAIN, "unfreeze": {"level": "last", "milestones": [1]}})
    found = fit(**AGAIN)
    ours, theirs = load_weights(kept.folder), load_weights(found.folder)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize(("highest", "used"), [(1.0, 0.00001 / 3), (1e-4, 1e-6 / 3)])
def test_where_no_rate_helps_at_a_milestone_a_hundredth_of_the_earlier_or_the_highest_one_is_used(
    fit, monkeypatch, highest, used
):
    def find_none(*_):
        raise range_test.NoRate("the training loss falls at no rate", highest)

    monkeypatch.setattr(finders, "run_range_test", find_none)
    assert fit(**AGAIN).metrics[-1]["lr"] == pytest.approx(used, rel=0.01)


def test_one_noisy_batch_does_not_end_a_range_test(fit, monkeypatch):
    """A trained head has losses of about 0.01, and of ten times as much in single batches."""
    tests = []
    monkeypatch.setattr(range_test, "suggest", lambda lrs, losses: tests.append(losses) or suggest(lrs, losses))
    run = fit(
        data={"name": "digits", "train_size": 300},
        backbone={"name": "test_resnet", "weights": "letters"},
        preprocessing={"image_size": 32},
        batch_size=32,
        epochs=10,
        unfreeze={"level": "last", "milestones": [6], "to_full": True, "milestone_lr": "auto"},
        optimizer={"name": "momentum", "lr": 0.5},
    )
    (losses,) = tests
    assert len(losses) > 12  # it ended after 3
    assert run.metrics[6]["lr"] < 0.05
    assert run.metrics[-1]["val_accuracy"] > 0.6  # with the rate of the head it ended at 0.1


@pytest.mark.parametrize(("asked", "rates"), [(0.004, [0.02, 0.004, 0.004]), ("keep/10", [0.02, 0.002, 0.0002])])
def test_a_milestone_takes_a_number_or_a_share_of_the_rate_and_a_resume_keeps_it(
    fit, load_weights, tmp_path, asked, rates
):
    values = {
        "optimizer": {"name": "momentum", "lr": 0.02},
        "unfreeze": {"level": "last", "milestones": [1, 2], "milestone_lr": asked},
        "epochs": 3,
    }
    whole = fit(**values)
    assert [metrics["lr"] for metrics in whole.metrics] == pytest.approx(rates)
    fit(folder=tmp_path, **values, on_report=lambda report: report.epoch < 2)
    assert fit(folder=tmp_path, **values).metrics == whole.metrics
    ours, theirs = load_weights(tmp_path), load_weights(whole.folder)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_a_number_at_a_milestone_is_scaled_like_the_rate_at_the_start(fit):
    run = fit(
        optimizer={"name": "momentum", "lr": 0.02},
        unfreeze={"level": "last", "milestones": [1], "milestone_lr": 0.004},
        lr_scaling={"rule": "linear"},
    )
    first, second = (metrics["lr"] for metrics in run.metrics)
    assert first != 0.02
    assert second / first == pytest.approx(0.2)


def test_the_rate_is_where_the_loss_falls_fastest_over_its_logarithm():
    lrs = [10 ** (-6 + step / 10) for step in range(70)]
    losses = [2.0 - 1.5 / (1 + math.exp(-8 * (math.log10(lr) + 3))) + max(0.0, math.log10(lr) + 1) ** 3 for lr in lrs]
    assert 1e-3 < suggest(lrs, losses) < 6e-3  # the mean lags some steps behind the fall at 1e-3
    assert suggest(lrs, [*losses, math.nan]) == suggest(lrs, losses)
    with pytest.raises(UserError, match=r"optimizer\.lr=auto: the training loss falls at no rate from 1e-06 to 7\.9"):
        suggest(lrs, [1.0 + step for step in range(70)])


@pytest.mark.parametrize(("epoch_steps", "tested"), [(3, 40), (100, 50), (10_000, 70)])
def test_a_range_test_takes_half_of_an_epochs_steps_within_bounds(epoch_steps, tested):
    recipe = read_recipe({"optimizer": {"name": "adam", "lr": "auto"}})
    rates = list_rates(recipe.optimizer, epoch_steps)
    assert len(rates) == tested
    assert rates[0] < 1e-6  # around the default of the optimizer, 0.001
    assert 0.1 < rates[-1] < 1


def test_a_fit_takes_no_more_steps_than_rates_and_as_many_batches_each_as_the_training(fit, monkeypatch):
    monkeypatch.setattr(range_test, "ABOVE", 1.0)  # at higher rates the test would end early
    batches = []
    step = finders.Classifier.training_step
    monkeypatch.setattr(
        finders.Classifier,
        "training_step",
        lambda self, batch, index: batches.append(self.recipe.optimizer.lr) or step(self, batch, index),
    )
    fit(**{**AUTO, "accumulation": {"batches": 2}})
    assert batches.count(finders.SAFE_RATE) == 40 * 2


def test_a_scaled_rate_cannot_be_found():
    with pytest.raises(
        UserError, match=r"lr_scaling\.rule=linear scales a number, and optimizer\.lr=auto is found with"
    ):
        read_recipe({"optimizer": {"name": "sgd", "lr": "auto"}, "lr_scaling": {"rule": "linear"}})


@pytest.fixture
def room_for(monkeypatch):
    """Pretend that a training step of more than so many images runs out of memory; returns the sizes tried."""
    tried = []

    def limit(most):
        step = finders.Classifier.training_step

        def training_step(self, batch, index):
            tried.append(len(batch[0]))
            if len(batch[0]) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return step(self, batch, index)

        monkeypatch.setattr(finders.Classifier, "training_step", training_step)
        # For this test the device counts as a GPU.
        monkeypatch.setattr(
            "training.train.resolve_recipe", lambda recipe, data, _: resolve_recipe(recipe, data, "cuda")
        )
        return tried

    return limit


def test_the_largest_power_of_two_that_fits_is_found_and_used(fit, room_for, load_weights):
    tried = room_for(20)
    run = fit(batch_size="auto", epochs=1)
    assert tried[:9] == [2, 2, 4, 4, 8, 8, 16, 16, 32]
    assert set(tried[9:]) == {16}
    assert run.outcome.recipe.batch_size == 16
    assert torch.load(run.folder / "best.ckpt", weights_only=True)["recipe"]["batch_size"] == 16
    ours, theirs = load_weights(run.folder), load_weights(fit(batch_size=16, epochs=1).folder)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_an_evaluation_must_fit_as_well(fit, room_for, monkeypatch):
    room_for(1000)
    step = finders.Classifier.validation_step

    def validation_step(self, batch, index):
        if len(batch[0]) > 128:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step(self, batch, index)

    monkeypatch.setattr(finders.Classifier, "validation_step", validation_step)
    side = {"image_size": 32}  # of smaller ones more are evaluated at a time
    run = fit(batch_size="auto", epochs=1, data={"name": "digits", "train_size": 300}, preprocessing=side)
    assert run.outcome.recipe.batch_size == 128


def test_the_average_of_the_weights_must_fit_as_well(fit, room_for, monkeypatch):
    room_for(4)
    copies = []
    start = WeightAverage.on_train_start

    def on_train_start(self, *arguments):
        start(self, *arguments)
        copies.append(len(self.beside))

    monkeypatch.setattr(WeightAverage, "on_train_start", on_train_start)
    fit(batch_size="auto", epochs=2, averaging={"name": "swa", "start": 0.5})
    assert len(copies) == 4  # for 2, 4 and 8 images, and in the training
    assert len(set(copies)) == 1


def test_no_batch_is_larger_than_an_epoch_and_it_is_tried_at_the_deepest_level(fit, room_for, caplog):
    room_for(1000)
    gradual = {"unfreeze": {"level": "last", "milestones": [1, 2]}, "epochs": 3}
    counted = []
    prepare = finders.simplify
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, "training"):
        patch.setattr(finders, "simplify", lambda *some: counted.append(some[1]) or prepare(*some))
        run = fit(batch_size="auto", data={"name": "digits", "train_size": 90}, **gradual)
    assert run.outcome.recipe.batch_size == 64
    assert set(counted) == {"full"}
    assert "batch_size=64: the largest power of two that fits" in caplog.text


def test_a_memory_too_small_for_two_images_is_refused(fit, room_for):
    room_for(1)
    with pytest.raises(UserError, match="batch_size=auto: not even 2 images fit"):
        fit(batch_size="auto")


def test_a_batch_size_cannot_be_found_on_a_cpu(fit):
    with pytest.raises(
        UserError, match=r"batch_size=auto is found by filling the memory of a GPU, and this machine has none"
    ):
        fit(batch_size="auto")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_batch_size_and_a_rate_are_found_on_a_gpu(tiny_recipe, tmp_path):
    recipe = tiny_recipe(batch_size="auto", optimizer={"name": "adam", "lr": "auto"})
    found = train(recipe, tmp_path, resources=Resources(device="cuda")).recipe
    assert found.batch_size == 64  # all images of an epoch fit
    assert isinstance(found.optimizer.lr, float)


def test_a_batch_that_does_not_fit_leaves_no_model_in_memory(monkeypatch):
    models = []

    def try_steps(recipe, prepare, size):
        if size <= 4:
            return True
        model = torch.nn.Linear(1, 1)
        model.owner = [model]  # as the trainer of a model names it, and it its trainer
        models.append(weakref.ref(model))
        raise torch.OutOfMemoryError

    monkeypatch.setattr(finders, "_try_steps", try_steps)
    gc.disable()  # it would come at some time, perhaps after the training
    try:
        recipe = finders.find_batch_size(read_recipe({"batch_size": "auto"}), lambda *_: None, 1, 64)
        assert (recipe.batch_size, [model() for model in models]) == (4, [None])
    finally:
        gc.enable()
