from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.trainer.connectors import callback_connector

from training.data import load_data
from training.data.sources import digits
from training.recipe import read_recipe
from training.small_trainings import MACHINE
from training.train import train

TINY = {
    "data": {"name": "digits", "train_size": 64},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "preprocessing": {"image_size": 16},  # the digits have 8 pixels; with 32 a test takes nearly twice as long
    "epochs": 2,
    "batch_size": 16,
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def no_callbacks_of_packages():
    """Lightning looks through all installed packages for callbacks in each training, which takes 30 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callback_connector, "_load_external_callbacks", lambda group: [])
        yield


def _forget_data():
    digits.load_split.cache_clear()
    load_data._load_once.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def few_validation_images(request):
    """Leave out most validation images, on which these tests would spend more time than on training.

    The processes of further devices do not see this change, and tests of data sources count the images.
    """
    if {"distributed", "data"} & set(request.path.parts):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "HELD_OUT", 80)
        _forget_data()
        yield
    _forget_data()  # other tests of this process must not get these images


@pytest.fixture
def tiny_recipe():
    """Build a small recipe: `tiny_recipe(epochs=3, optimizer={...})`."""
    return lambda **fields: read_recipe({**TINY, **fields})


@pytest.fixture
def fit(tiny_recipe, tmp_path_factory):
    """Train a small recipe in a new folder. Returns the outcome, the metrics of each epoch, the best weights, the folder."""

    def run(folder=None, metric="val_accuracy", score="best", on_report=lambda report: True, **fields):
        folder = folder or tmp_path_factory.mktemp("fit")
        outcome = train(tiny_recipe(**fields), folder, metric=metric, score=score, on_report=on_report)
        metrics = [
            {name: value for name, value in report.metrics.items() if name not in MACHINE} for report in outcome.reports
        ]
        return SimpleNamespace(outcome=outcome, metrics=metrics, folder=folder, state=outcome.state)

    return run


@pytest.fixture
def load_weights():
    """Return the weights of `last` or `best` in a folder, by their names in the model."""

    def load(folder, which="last"):
        state = torch.load(folder / f"{which}.ckpt", weights_only=True)["state_dict"]
        return {name.removeprefix("model.") if which == "last" else name: value for name, value in state.items()}

    return load
