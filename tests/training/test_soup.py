"""The mean of several trainings: which are kept, and what BatchNorm's statistics are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.evaluate import predict_part, restore_model
from training.recipe import read_recipe
from training.soup import Ingredient, average, cook, mix

CLASSES = tuple(map(str, range(10)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two trainings from the same start at two rates."""
    from training.train import train

    found = []
    for rate in (0.01, 0.02):
        recipe = read_recipe(
            {
                "data": {"name": "digits", "train_size": 64},
                "backbone": {"name": "test_resnet", "weights": "letters"},
                "epochs": 3,
                "batch_size": 16,
                "optimizer": {"name": "momentum", "lr": rate},
            }
        )
        folder = tmp_path_factory.mktemp("soup")
        train(recipe, folder)
        saved = torch.load(folder / "best.ckpt", weights_only=True)
        found.append(Ingredient(f"rate {rate}", read_recipe(saved["recipe"]), saved["state_dict"]))
    return found


def predict(model, recipe):
    return predict_part(model, load_data(recipe.data).val, recipe)[0]


def test_the_statistics_of_a_mean_are_those_that_torch_measures_on_the_training_images(trained):
    recipe = trained[0].recipe
    data = load_data(recipe.data)
    ours = mix(trained, data, 10)
    theirs = restore_model(recipe, average([one.weights for one in trained]), 10)
    before = predict(theirs, recipe)
    batches = [images for images, _ in make_eval_loader(data.train, recipe, workers=0, device="cpu")]
    torch.optim.swa_utils.update_bn(batches, theirs)
    torch.testing.assert_close(predict(ours, recipe), predict(theirs, recipe))
    assert not torch.allclose(predict(ours, recipe), before, atol=1e-2)
    assert [module for module in ours.modules() if module.training] == []


def test_statistics_that_are_the_same_in_all_trainings_stay(trained):
    one = trained[0]
    moved = {name: value + 0.01 if name.startswith("fc") else value for name, value in one.weights.items()}
    soup = mix([one, replace(one, weights=moved)], load_data(one.recipe.data), 10)
    assert [
        (name, value)
        for name, value in soup.state_dict().items()
        if "running" in name and not torch.equal(value, one.weights[name])
    ] == []


def test_a_training_that_makes_the_mean_worse_is_left_out_and_one_that_does_not_is_kept(trained):
    good = trained[0]
    noise = {
        name: torch.randn_like(value) if value.is_floating_point() else value for name, value in good.weights.items()
    }
    bad = Ingredient("noise", good.recipe, {name: value.abs() + 1 for name, value in noise.items()})
    cooked = cook([good, bad, replace(good, name="copy")], CLASSES, "val_accuracy")
    assert cooked.names == (good.name, "copy")
    assert cooked.gain == cooked.gain_error == 0.0
    torch.testing.assert_close(cooked.weights, good.weights)


@pytest.mark.parametrize("metric", ["val_accuracy", "val_loss", "val_macro_f1"])
def test_the_gain_is_the_difference_of_the_metric_and_its_error_is_that_of_pairs(metric, trained):
    first, second = trained
    cooked = cook([second, first], CLASSES, metric)
    alone = cook([second], CLASSES, metric)
    assert cooked.gain == pytest.approx(cooked.metrics[metric] - alone.metrics[metric])
    if len(cooked.names) == 2:
        assert 0 < cooked.gain_error <= cooked.standard_error + alone.standard_error  # as for any difference
    sign = -1 if metric == "val_loss" else 1
    assert sign * cooked.gain >= 0
    assert alone.gain == alone.gain_error == 0.0
