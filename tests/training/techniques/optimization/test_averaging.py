"""Averages of weights: their values, and that they are scored, saved and restored on a resume."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, update_bn

from training.callbacks import weight_average as averaging
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.errors import UserError
from training.model.build import build_model
from training.recipe import read_recipe
from training.resolve import resolve_recipe

EPOCHS = 4
PLAIN = {"name": "constant"}
RESTARTS = {"name": "cosine_restarts", "cycles": 2}
SHARED = {"epochs": EPOCHS, "optimizer": {"name": "momentum", "lr": 0.02}}


@pytest.fixture
def watch(fit, load_weights, tmp_path_factory):
    """Fit, and return the weights of every epoch's end."""

    def run(**fields):
        folder, ends = tmp_path_factory.mktemp("watched"), []
        fit(folder=folder, **fields, on_report=lambda report: ends.append(load_weights(folder)) or True)
        return ends

    return run


def average(recipe, ends):
    """Average these weights by torch: AveragedModel, then update_bn on the last epoch's batches."""
    data = load_data(recipe.data)
    resolved = resolve_recipe(recipe, data, "cpu")
    model = build_model(recipe.backbone, len(data.classes), resolved.preprocessing.image_size)
    averaged = AveragedModel(model)
    for weights in ends:
        model.load_state_dict(weights)
        averaged.update_parameters(model)
    train = make_loaders(data, resolved, workers=0).train
    train.batch_sampler.sampler.set_epoch(recipe.epochs - 1)
    update_bn(train, averaged)
    return averaged.module.state_dict()


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5, msg=name)


def distance(one, other):
    first = next(iter(one))
    return float((one[first] - other[first]).norm())


@pytest.mark.parametrize(("schedule", "averaged"), [(PLAIN, (1, 2, 3)), (RESTARTS, (1, 3))])
def test_swa_is_torchs_mean_of_the_last_epochs_or_of_the_minima(schedule, averaged, watch, tiny_recipe):
    fields = {**SHARED, "schedule": schedule, "augmentation": {"policy": "affine_colour"}}
    swa = {"name": "swa", "start": 0.5}
    plain, ours = watch(**fields), watch(**fields, averaging=swa)
    expected = average(tiny_recipe(**fields), [plain[epoch] for epoch in averaged])
    assert_close(ours[-1], expected)
    assert_close(ours[0], plain[0])  # before its start, the weights themselves
    assert distance(ours[-1], plain[-1]) > 0


@pytest.mark.parametrize("model", ["test_resnet", "test_convnext"])  # with BatchNorm, and without
@pytest.mark.parametrize("technique", [{"name": "swa", "start": 0.5}, {"name": "ema"}])
def test_the_average_is_scored_and_saved_without_extra_epochs(technique, model, fit, tiny_recipe, load_weights):
    fields = {**SHARED, "backbone": {"name": model, "weights": "none"}, "averaging": technique}
    fields |= {"preprocessing": {"image_size": 32}} if model == "test_convnext" else {}
    plain, run = fit(**{**fields, "averaging": {"name": "none"}}), fit(**fields)
    assert len(run.metrics) == EPOCHS
    assert run.metrics[-1] != plain.metrics[-1]
    assert [metrics["train_loss"] for metrics in run.metrics] == [metrics["train_loss"] for metrics in plain.metrics]
    recipe = run.outcome.recipe
    data = load_data(recipe.data)
    loaders = make_loaders(data, recipe, workers=0)
    network = build_model(recipe.backbone, len(data.classes), recipe.preprocessing.image_size).eval()
    for which, epoch in (("last", EPOCHS), ("best", run.outcome.reports[-1].best_epoch)):
        network.load_state_dict(load_weights(run.folder, which))
        with torch.no_grad():
            losses = [F.cross_entropy(network(images), labels, reduction="none") for images, labels in loaders.val]
        assert float(torch.cat(losses).mean()) == pytest.approx(run.metrics[epoch - 1]["val_loss"], rel=1e-5)


def test_between_two_minima_of_warm_restarts_the_scores_do_not_change(fit):
    run = fit(**SHARED, schedule=RESTARTS, averaging={"name": "swa", "start": 0.1})
    first, second, third, fourth = (
        {**metrics, "lr": 0, "train_loss": 0, "train_accuracy": 0} for metrics in run.metrics
    )
    assert first != second
    assert second == third
    assert third != fourth


def test_statistics_of_frozen_batch_norms_are_not_measured_again(fit, load_weights):
    run = fit(**SHARED, unfreeze={"level": "last"}, averaging={"name": "swa", "start": 0.5})
    weights = load_weights(run.folder)
    assert [
        (name, value) for name, value in weights.items() if name.endswith("running_mean") and not (value == 0).all()
    ] == []


def test_measuring_statistics_again_counts_as_training_time(fit, monkeypatch):
    now, refresh = [0.0], averaging.refresh_batch_norm

    def pass_seconds(count):
        now[0] += count
        return now[0]

    clock = SimpleNamespace(perf_counter=lambda: pass_seconds(0.01))  # a look at it lasts a moment
    monkeypatch.setattr("training.loop.stopwatch.time", clock)
    monkeypatch.setattr(averaging, "refresh_batch_norm", lambda *each: refresh(*each) or pass_seconds(1000.0))
    run = fit(**SHARED, averaging={"name": "swa", "start": 0.6})
    seconds = [0.0, *(report.metrics["train_seconds"] for report in run.outcome.reports)]
    spent = [after - before for before, after in pairwise(seconds)]
    assert [round(it, -3) for it in spent] == [0, 0, 1000, 1000]


def test_an_ema_of_a_short_training_is_not_at_chance(fit):
    """With a decay of 0.999, as usual for long trainings, these 42 steps would leave 96 % of the untrained weights."""
    fields = {"data": {"name": "digits", "train_size": 200}, "batch_size": 16, "epochs": 3}
    fields |= {"optimizer": {"name": "adam", "lr": 0.01}, "schedule": {"name": "cosine"}}
    plain, ema = (
        [metrics["val_accuracy"] for metrics in fit(**fields, averaging=technique).metrics]
        for technique in ({"name": "none"}, {"name": "ema"})
    )
    assert ema[-1] > 0.5
    assert ema[-1] > plain[-1] - 0.1


def test_a_longer_half_life_keeps_the_average_closer_to_the_initial_weights(watch):
    def moved(**technique):
        ends = watch(**SHARED, averaging=technique)
        return distance(ends[-1], ends[0])

    ends = moved(name="none"), moved(name="ema", half_life=0.01), moved(name="ema", half_life=0.5)
    assert ends[1] == pytest.approx(ends[0], rel=0.1)
    assert ends[2] < 0.8 * ends[1]


def test_an_ema_with_a_half_life_of_half_the_steps_is_torchs_mean_of_them_all(watch, tiny_recipe):
    fields = {**SHARED, "epochs": 3, "batch_size": 64, "augmentation": {"policy": "affine_colour"}}  # one step an epoch
    plain, ours = watch(**fields), watch(**fields, averaging={"name": "ema", "half_life": 0.5})
    weights, expected = ours[-1], average(tiny_recipe(**fields), plain)
    torch.testing.assert_close(*(next(iter(each.values())) for each in (weights, expected)))


def test_the_rate_anneals_from_the_schedules_to_swas_and_stays(fit):
    fields = {**SHARED, "schedule": {"name": "cosine"}, "optimizer": {"name": "sgd", "lr": 0.1}}
    swa = {"name": "swa", "start": 0.5, "lr_factor": 0.6, "annealing_epochs": 1.0}
    run, plain = fit(**fields, averaging=swa), fit(**fields)
    rates, before = ([lr for report in one.outcome.reports for _, lr, _ in report.steps] for one in (run, plain))
    half = len(rates) // 2
    assert rates[: half + 1] == before[: half + 1]
    annealing = rates[half : half + 4]
    assert annealing == sorted(annealing)
    assert rates[half + 4 :] == pytest.approx([0.06] * (half - 4))
    assert run.metrics[-1]["lr"] == pytest.approx(0.06)


@pytest.mark.parametrize(("schedule", "moments"), [({"name": "constant"}, [9, 10]), (RESTARTS, [5, 10])])
def test_a_late_start_still_averages_two_moments(schedule, moments):
    recipe = read_recipe({"epochs": 10, "schedule": schedule, "averaging": {"name": "swa", "start": 0.99}})
    assert recipe.averaging.moments(recipe, [1] * 10) == moments


def test_an_average_without_anything_to_average_is_refused():
    with pytest.raises(UserError, match=r"averaging\.name=swa has one moment to average in epochs=1"):
        read_recipe({"epochs": 1, "averaging": {"name": "swa"}})
    with pytest.raises(UserError, match=r"averaging\.lr_factor=0\.5 would end the cycles"):
        read_recipe({"schedule": RESTARTS, "averaging": {"name": "swa", "start": 0.1, "lr_factor": 0.5}})
    with pytest.raises(UserError, match=r"averaging\.annealing_epochs does nothing without averaging\.lr_factor"):
        read_recipe({"averaging": {"name": "swa", "annealing_epochs": 1.0}})
