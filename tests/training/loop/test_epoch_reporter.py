"""Score, best epoch and the weights in best.ckpt belong together."""

from __future__ import annotations

import pytest
import torch

from training.data.pipelines.loaders import make_eval_loader
from training.data.sources.load_data import load_data
from training.loop.classifier import Classifier
from training.loop.metrics import measure
from training.model.build import build_model
from training.recipe import read_recipe
from training.score_metrics import MINIMISED

CHANGEABLE = {"epochs": 4, "optimizer": {"name": "sgd", "lr": 0.3}}  # with this rate the score rises and falls


@pytest.mark.parametrize("metric", ["val_accuracy", "val_loss"])
def test_the_best_weights_have_the_score_of_the_best_epoch(metric, fit):
    run = fit(metric=metric, **CHANGEABLE)
    values = [report.metrics[metric] for report in run.outcome.reports]
    best = min(values) if metric in MINIMISED else max(values)
    last = run.outcome.reports[-1]
    assert last.score == best
    assert last.best_epoch == values.index(best) + 1
    saved = torch.load(run.folder / "best.ckpt", weights_only=True)
    assert saved.keys() == {"state_dict", "epoch", "recipe", "classes"}
    assert saved["epoch"] == last.best_epoch
    assert saved["classes"] == [str(digit) for digit in range(10)]
    recipe = read_recipe(saved["recipe"])
    assert recipe == run.outcome.recipe
    assert "auto" not in recipe.preprocessing.model_dump().values()
    metrics = validate(recipe, saved["state_dict"])
    reported = run.outcome.reports[saved["epoch"] - 1].metrics
    assert metrics == {name: reported[name] for name in metrics}


def validate(recipe, weights):
    """Return the validation metrics of weights, without the trainer."""
    data = load_data(recipe.data)
    model = build_model(recipe.backbone, len(data.classes), recipe.preprocessing.image_size).eval()
    model.load_state_dict(weights)
    images, labels = map(torch.cat, zip(*make_eval_loader(data.val, recipe, workers=0), strict=True))
    with torch.inference_mode():
        logits = torch.cat([model(images[:256]), model(images[256:])])  # in the loader's batches
    confidence, predicted = logits.softmax(1).max(1)
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return measure(labels, predicted, confidence, losses, len(data.classes), "val_accuracy")[0]


@pytest.mark.parametrize("metric", ["val_accuracy", "val_loss"])
def test_scores_never_get_worse_from_epoch_to_epoch(metric, fit):
    reports = fit(metric=metric, **CHANGEABLE).outcome.reports
    scores = [report.score for report in reports]
    assert scores == sorted(scores, reverse=metric in MINIMISED)
    assert [report.epoch for report in reports] == [1, 2, 3, 4]


def test_ties_keep_the_earlier_epoch(fit, monkeypatch):
    collect = Classifier.collect

    def level(self, score):
        metrics, error, points = collect(self, score)
        return {**metrics, "val_accuracy": [0.5, 0.7, 0.7, 0.6][self.current_epoch]}, error, points

    monkeypatch.setattr(Classifier, "collect", level)
    run = fit(epochs=4)
    assert [report.best_epoch for report in run.outcome.reports] == [1, 2, 2, 2]
    assert [report.score for report in run.outcome.reports] == [0.5, 0.7, 0.7, 0.7]
    assert torch.load(run.folder / "best.ckpt", weights_only=True)["epoch"] == 2


def test_reports_have_every_metric_and_come_after_the_checkpoint(fit, tmp_path):
    seen = []

    def look(report):
        saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
        seen.append((report.epoch, saved["epoch"] + 1))
        return True

    run = fit(folder=tmp_path, on_report=look)
    assert seen == [(1, 1), (2, 2)]
    expected = "val_accuracy val_balanced_accuracy val_macro_f1 val_loss val_ece train_loss train_accuracy lr"
    assert set(expected.split()) <= run.outcome.reports[0].metrics.keys()
    assert run.outcome.reports[0].metrics["images_per_second"] > 0
    times = [report.metrics["train_seconds"] for report in run.outcome.reports]
    assert 0 < times[0] < times[1]
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "best.ckpt"}
