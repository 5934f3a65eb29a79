"""The linear probe equals scikit-learn's on the features of the library, and uses a bounded sample."""

import numpy as np
import pytest
import timm
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torchvision.models import resnet18

from training import linear_probe
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.errors import UserError
from training.linear_probe import PENALTIES, probe_features
from training.model.build import build_model
from training.recipe import Recipe, read_recipe
from training.resolve import resolve_recipe

LETTERS = {"source": "timm", "name": "test_resnet", "weights": "letters"}


@pytest.fixture
def recipe() -> Recipe:
    return read_recipe({"data": {"name": "digits", "train_size": 200}, "backbone": LETTERS})


def features_of(recipe: Recipe, part) -> np.ndarray:
    """Features by timm's own functions."""
    model = build_model(recipe.backbone, 10, recipe.preprocessing.image_size).eval()
    with torch.no_grad():
        found = [
            model.forward_head(model.forward_features(x), pre_logits=True)
            for x, _ in make_eval_loader(part, recipe, workers=0)
        ]
    return torch.cat(found).numpy()


def test_the_best_regression_on_timms_own_features_has_the_accuracy_of_the_probe(recipe):
    data = load_data(recipe.data)
    whole = resolve_recipe(recipe, data, "cpu")
    scaler = StandardScaler().fit(features_of(whole, data.train))
    train, val = (scaler.transform(features_of(whole, part)) for part in (data.train, data.val))
    fits = [LogisticRegression(C=c, max_iter=2000).fit(train, data.train.labels) for c in PENALTIES]
    found = probe_features(recipe, "val_accuracy", 1)
    assert found.linear.metrics["val_accuracy"] == max(fit.score(val, data.val.labels) for fit in fits)
    assert (found.train_images, found.val_images) == (200, len(data.val))


def test_features_of_pretrained_weights_are_better_than_random_ones(recipe):
    random = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"weights": "none"})})
    scores = [probe_features(one, "val_accuracy", 1) for one in (recipe, random)]
    for name in ("linear", "knn"):
        letters, none = (getattr(found, name).metrics["val_accuracy"] for found in scores)
        assert letters > none + 0.05


def test_a_large_part_is_sampled_with_all_classes_and_the_test_part_is_not_read(recipe, monkeypatch):
    monkeypatch.setattr(linear_probe, "MOST_IMAGES", 40)
    data = load_data(recipe.data)
    parts = []
    monkeypatch.setattr(
        linear_probe, "make_eval_loader", lambda part, *a, **k: parts.append(part) or make_eval_loader(part, *a, **k)
    )
    found = probe_features(recipe, "val_accuracy", 1)
    assert (found.train_images, found.val_images) == (40, 40)
    held_out = {image.tobytes() for image in data.test.images} - {image.tobytes() for image in data.val.images}
    for part in parts:
        assert len(np.unique(part.labels)) == 10
        assert not {image.tobytes() for image in part.images} & held_out


def test_the_same_probe_twice_gives_the_same_numbers(recipe):
    first, second = (probe_features(recipe, "val_loss", 1) for _ in range(2))
    assert (first.linear, first.knn) == (second.linear, second.knn)


@pytest.mark.parametrize("model", [timm.create_model("test_convnext", num_classes=4), resnet18(num_classes=4)])
def test_inputs_of_the_head_have_one_row_for_each_image(model):
    with linear_probe.recorded_inputs(linear_probe.head_of(model.eval())) as inputs:
        model(torch.zeros(2, 3, 64, 64))
    assert inputs[0].shape[0] == 2
    assert inputs[0].dim() == 2


def test_weights_that_do_not_exist_are_refused(recipe, tmp_path):
    backbone = {**LETTERS, "weights": str(tmp_path / "none.safetensors")}
    with pytest.raises(UserError, match=r"backbone\.weights"):
        probe_features(read_recipe({"backbone": backbone}), "val_accuracy", 1)
