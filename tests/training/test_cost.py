"""The cost of a recipe from a few batches of it."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from training import cost as module
from training.contract.specs import Backbone
from training.cost import measure_cost
from training.data.sources.digits import Digits
from training.process.resources import ONE_CPU
from training.recipe import Recipe
from training.train import train

TINY = Recipe(
    data=Digits(train_size=300), backbone=Backbone(name="test_resnet", weights="none"), batch_size=16, epochs=30
)


@pytest.fixture
def trainings(monkeypatch):
    found = []

    def spy(recipe, folder, **arguments):
        found.append((recipe, arguments["val_images"]))
        return train(recipe, folder, **arguments)

    monkeypatch.setattr(module, "train", spy)
    return found


def test_a_long_epoch_is_measured_by_a_few_batches_and_scaled(trainings, monkeypatch):
    monkeypatch.setattr(module, "LONG_SECONDS", 0.0)
    assert measure_cost(TINY, ONE_CPU)[1] > 0
    ((recipe, val_images),) = trainings
    assert (recipe.epochs, recipe.data.epoch_size) == (2, 16)
    assert val_images == 64  # a whole batch, though 17 of the 80 would be in proportion


def test_seconds_are_those_of_the_second_epoch_scaled_to_all_images(monkeypatch):
    times = [(1.0, 1.0, 0.0, 99.0), (3.0, 2.0, 0.5, 8.0)]
    names = (*module.PARTS, "images_per_second")
    reports = [SimpleNamespace(metrics=dict(zip(names, one, strict=True))) for one in times]
    monkeypatch.setattr(module, "train", lambda *_, **__: SimpleNamespace(reports=reports))
    # 300 images, and 64 of 80 in the validation
    assert measure_cost(TINY, ONE_CPU) == (0.0, 300 / 8 + 1.0 * 80 / 64 + 0.5)


def test_a_short_epoch_is_measured_again_with_more_batches(trainings, monkeypatch):
    monkeypatch.setattr(module, "LONG_SECONDS", 100.0)
    measure_cost(TINY, ONE_CPU)
    assert [recipe.data.epoch_size for recipe, _ in trainings] == [16, 300]


def test_all_of_the_model_is_measured_whatever_trains_at_the_start(trainings, monkeypatch):
    monkeypatch.setattr(module, "LONG_SECONDS", 0.0)
    values = TINY.model_dump() | {"unfreeze": {"level": "last", "milestones": [9], "milestone_lr": "auto"}}
    measure_cost(Recipe.model_validate(values | {"optimizer": {"name": "sgd", "lr": "auto"}}), ONE_CPU)
    assert (trainings[0][0].unfreeze.level, trainings[0][0].unfreeze.milestones) == ("full", [])


def test_what_trainings_find_stored_is_not_measured(tmp_path, monkeypatch, caplog):
    for number in range(40):
        (tmp_path / str(number % 2)).mkdir(exist_ok=True)
        Image.fromarray(np.full((20, 20, 3), 6 * number, np.uint8)).save(tmp_path / str(number % 2) / f"{number}.png")

    class Began(Exception):
        pass

    def begin(recipe, folder, **arguments):
        raise Began(recipe.linear_probe.c)  # the features of a probe are stored too

    monkeypatch.setattr(module, "train", begin)
    caplog.set_level(logging.INFO)
    values = {"data": {"name": "image_folder", "root": str(tmp_path)}, "linear_probe": {"c": "auto"}}
    values["backbone"] = {"name": "test_resnet", "weights": "letters"}
    with pytest.raises(Began, match="off"):
        measure_cost(Recipe.model_validate(TINY.model_dump() | values), ONE_CPU)
    assert "Decoding 28 images once" in caplog.text


def test_fewer_validation_images_are_spread_over_the_classes(tmp_path):
    seen = []
    train(TINY.model_copy(update={"epochs": 1}), tmp_path, val_images=40, on_report=lambda r: seen.append(r) or True)
    # A standard error from 40 images is larger than one from all.
    assert seen[0].metrics["val_accuracy"] * 40 == pytest.approx(round(seen[0].metrics["val_accuracy"] * 40))
