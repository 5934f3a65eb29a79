"""The head starts at scikit-learn's logistic regression on the frozen features, and fine-tuning goes on from there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torchvision.models import resnet18

from training.data.load_data import load_data
from training.distributed.rank import ALONE
from training.errors import UserError
from training.linear_probe import ABSENT, choose_c, compute_head_inputs, fit_logistic, recorded_inputs, start_head
from training.model.stages import head_of
from training.recipe import read_recipe
from training.resolve import resolve_recipe
from training.techniques.loss.losses import LogitAdjusted
from training.train import prepare, train

RECIPE = {
    "data": {"name": "digits", "train_size": 200},
    "backbone": {"name": "test_resnet", "weights": "letters"},
    "epochs": 2,
    "linear_probe": {"c": 0.01},
}
PROBE = {"linear_probe": {"c": 0.01, "trains": False}, "unfreeze": {"level": "last"}}


def resolved(values):
    recipe = read_recipe(values)
    data = load_data(recipe.data)
    return resolve_recipe(recipe, data, "cpu"), data


@pytest.fixture
def made_up():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    return (random.normal(size=(90, 6)) + labels[:, None]).astype(np.float32) * [1, 10, 0.1, 1, 1, 5], labels


def probe(c, features, **settings):
    scale = FunctionTransformer(lambda values: (values - features.mean(0)) / features.std(0).mean())
    return make_pipeline(scale, LogisticRegression(C=c, max_iter=1000, **settings))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("c", [0.003, 10.0])
def test_the_linear_layer_has_the_probabilities_of_scikit_learn(made_up, count, c):
    features, labels = made_up[0][: 30 * count], made_up[1][: 30 * count]
    weight, bias = fit_logistic(features, labels, count, c)
    theirs = probe(c, features, tol=1e-6).fit(features, labels)
    logits = torch.from_numpy(features @ weight.T + bias)
    assert np.allclose(logits.softmax(1), theirs.predict_proba(features), atol=2e-3)


def test_a_class_without_images_is_never_predicted(made_up):
    weight, bias = fit_logistic(made_up[0], 2 * made_up[1], 5, 0.1)
    assert bias[[1, 3]].tolist() == [ABSENT, ABSENT]
    assert set((made_up[0] @ weight.T + bias).argmax(1)) == {0, 2, 4}


def test_cross_validation_takes_a_strong_penalty_for_noise_and_a_weak_one_where_features_tell_all(made_up):
    noise = np.random.default_rng(1).normal(size=(90, 200))
    assert choose_c(noise, made_up[1], 0) <= 0.001 < 0.1 <= choose_c(np.eye(3)[made_up[1]] * 3, made_up[1], 0)


def test_classes_with_one_image_take_no_part_in_the_cross_validation(made_up):
    features, labels = np.eye(3)[made_up[1]] * 3, made_up[1].copy()
    chosen = choose_c(features, labels, 0)
    labels[:2] = 3, 4
    assert choose_c(features, labels, 0) == chosen > 0.01
    assert choose_c(features[:4], np.array([0, 0, 1, 2]), 0) == 0.01


def test_the_probe_of_a_model_in_float64_is_that_of_float32(tmp_path):
    scores = []
    for mode in ("32-true", "64-true"):
        (tmp_path / mode).mkdir()
        trained = train(read_recipe(RECIPE | PROBE | {"precision": {"mode": mode}}), tmp_path / mode)
        scores.append(trained.reports[-1].score)
    assert scores[0] == pytest.approx(scores[1], abs=0.02)


@pytest.mark.parametrize("level", ["last", "most", "full"])
def test_each_level_starts_at_the_probe(level):
    recipe, data = resolved(RECIPE | {"unfreeze": {"level": level}})
    classifier = prepare(data, "cpu", ALONE, recipe)
    start_head(classifier, data.train, 0)
    inputs = compute_head_inputs(classifier, data.val, 0)
    seen = compute_head_inputs(classifier, data.train, 0)
    theirs = probe(0.01, seen).fit(seen, data.train.labels)
    images = torch.stack([torch.as_tensor(image) for image, _ in _evaluated(data.val, recipe)])
    with torch.no_grad():
        predicted = classifier.model.eval()(images).argmax(1).numpy()
    assert np.mean(predicted == theirs.predict(inputs)) >= 0.99


def test_with_a_logit_adjusted_loss_the_head_starts_without_the_frequencies_of_the_classes():
    recipe, data = resolved(RECIPE)
    adjusted = recipe.model_copy(update={"loss": LogitAdjusted(tau=0.5)})
    data = replace(data, train=data.train.select(np.flatnonzero((data.train.labels != 3) | (np.arange(200) % 4 == 0))))
    biases, losses = [], []
    for each in (recipe, adjusted):
        classifier = prepare(data, "cpu", ALONE, each)
        start_head(classifier, data.train, 0)
        biases.append(classifier.model.fc.bias.detach().clone())
        with torch.no_grad():
            features = torch.from_numpy(compute_head_inputs(classifier, data.train, 0))
            losses.append(
                float(classifier.criterion(classifier.model.fc(features), torch.from_numpy(data.train.labels)))
            )
    shares = torch.from_numpy(np.bincount(data.train.labels) / len(data.train)).float()
    torch.testing.assert_close(biases[1], biases[0] - 0.5 * shares.log())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # so the training begins where it did


def _evaluated(part, recipe):
    from training.data.pipelines.loaders import make_eval_loader

    for images, labels in make_eval_loader(part, recipe, workers=0):
        yield from zip(images, labels, strict=True)


def test_the_plain_probe_stays_what_it_is_and_a_fine_tuning_does_not(tmp_path):
    for name in ("plain", "tuned"):
        (tmp_path / name).mkdir()
    plain = train(read_recipe(RECIPE | PROBE), tmp_path / "plain")
    scores = [report.score for report in plain.reports]
    assert scores[0] == scores[1] > 0.6
    tuned = train(read_recipe(RECIPE), tmp_path / "tuned")
    head = [torch.load(tmp_path / name / "best.ckpt")["state_dict"]["fc.weight"] for name in ("plain", "tuned")]
    assert not torch.equal(*head)
    assert tuned.reports[0].metrics["train_loss"] < 1.5  # a random head begins above log 10 = 2.3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"linear_probe": {"trains": False}}, "set linear_probe.c=auto"),
        ({"backbone": {"name": "test_resnet", "weights": "none"}}, "use pretrained weights, or c=off"),
        ({"optimizer": {"name": "adamw", "lr": "auto"}}, "give lr as a number"),
        (
            {"linear_probe": {"c": 0.1, "trains": False}, "classifier_retraining": {"epochs": 1}},
            "trains none: leave one out",
        ),
        ({"attention_pooling": {"heads": 4}, "unfreeze": {"level": "last"}}, "leave one out"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(UserError, match=words):
        read_recipe(RECIPE | changes)


def test_a_head_that_is_not_linear_is_refused():
    recipe, data = resolved(RECIPE)
    classifier = prepare(data, "cpu", ALONE, recipe)
    classifier.model.fc = torch.nn.Sequential(classifier.model.fc)
    with pytest.raises(UserError, match="the head of ResNet is not linear"):
        start_head(classifier, data.train, 0)


def test_a_feature_that_hardly_varies_gets_no_large_weight():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50)
    features = random.normal(size=(100, 20)) * np.geomspace(1e-6, 1, 20)
    weight, _ = fit_logistic(features.astype(np.float32), labels, 2, 1.0)
    assert np.abs(weight[:, :5]).max() < np.abs(weight[:, -5:]).max()


@pytest.mark.parametrize("model", [timm.create_model("test_convnext", num_classes=4), resnet18(num_classes=4)])
def test_inputs_of_the_head_have_one_row_for_each_image(model):
    with recorded_inputs(head_of(model.eval())) as inputs:
        model(torch.zeros(2, 3, 64, 64))
    assert inputs[0].shape[0] == 2
    assert inputs[0].dim() == 2
