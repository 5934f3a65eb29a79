"""Score, best epoch and the weights in best.ckpt belong together."""

from __future__ import annotations

import pytest
import torch

import training.loop.auto_values.finders as finders
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.errors import UserError
from training.loop.classifier import Classifier
from training.loop.epoch_reporter import EpochReporter
from training.loop.metrics import judge, measure
from training.model.build import build_model
from training.recipe import read_recipe
from training.score_metrics import MINIMISED, SOFT

ACTIVITIES = ("train", "evaluation", "checkpoint", "finder")
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
    # In float64, which shows the last bits of the logits.
    for name in SOFT:
        assert metrics.pop(name) == pytest.approx(reported[name], abs=1e-7)
    assert metrics == {name: reported[name] for name in metrics}


def test_what_is_said_of_a_large_validation_is_not_kept(fit, monkeypatch):
    monkeypatch.setattr("training.loop.classifier.MOST_ANSWERS", 100)
    last = fit(epochs=1).outcome.reports[-1]
    assert (last.labels, last.probabilities) == ((), "")


def predict(recipe, weights):
    """Return the logits and labels of the validation images, without the trainer."""
    data = load_data(recipe.data)
    model = build_model(recipe.backbone, len(data.classes), recipe.preprocessing.image_size).eval()
    model.load_state_dict(weights)
    batches = list(make_eval_loader(data.val, recipe, workers=0))
    with torch.inference_mode():
        logits = torch.cat([model(images) for images, _ in batches])
    return logits, torch.cat([labels for _, labels in batches])


def validate(recipe, weights):
    """Return the validation metrics of weights, without the trainer."""
    return measure(judge(*predict(recipe, weights)), 10, "val_accuracy")[0]


@pytest.mark.parametrize("metric", ["val_accuracy", "val_loss"])
def test_scores_never_get_worse_from_epoch_to_epoch(metric, fit):
    reports = fit(metric=metric, **CHANGEABLE).outcome.reports
    scores = [report.score for report in reports]
    assert scores == sorted(scores, reverse=metric in MINIMISED)
    assert [report.epoch for report in reports] == [1, 2, 3, 4]


@pytest.fixture
def fall(monkeypatch):
    """The second of three epochs is the best."""
    collect = Classifier.collect

    def collect_falling(self, score):
        metrics, error, points = collect(self, score)
        return {**metrics, "val_accuracy": [0.5, 0.7, 0.6][self.current_epoch]}, error, points

    monkeypatch.setattr(Classifier, "collect", collect_falling)


def test_the_last_epoch_is_scored_and_kept_if_asked_though_an_earlier_one_was_better(fit, fall):
    run = fit(epochs=3, score="last")
    assert [(report.best_epoch, report.score) for report in run.outcome.reports] == [(1, 0.5), (2, 0.7), (3, 0.6)]
    assert torch.load(run.folder / "best.ckpt", weights_only=True)["epoch"] == 3
    with pytest.raises(UserError, match="holds a training with score=last, not best"):
        fit(run.folder, epochs=3)


@pytest.mark.parametrize("score", ["best", "last"])
def test_the_last_report_has_what_the_kept_weights_say_of_the_validation_images(score, fit, fall):
    run = fit(score=score, epochs=3)
    *earlier, last = run.outcome.reports
    assert not any(report.labels or report.probabilities for report in earlier)
    saved = torch.load(run.folder / "best.ckpt", weights_only=True)
    assert saved["epoch"] == last.best_epoch == {"best": 2, "last": 3}[score]
    logits, labels = predict(run.outcome.recipe, saved["state_dict"])
    assert last.labels == tuple(labels.tolist())
    shares = torch.tensor(list(bytes.fromhex(last.probabilities))).reshape(len(labels), 10) / 255
    torch.testing.assert_close(shares, logits.softmax(1), atol=0.501 / 255, rtol=0)


def test_a_resumed_training_says_what_its_best_epoch_said_before_the_stop(fit, fall):
    whole = fit(epochs=3).outcome.reports[-1]
    stopped = fit(epochs=3, on_report=lambda report: report.epoch < 2)
    resumed = fit(stopped.folder, epochs=3).outcome.reports[-1]
    assert (resumed.labels, resumed.probabilities) == (whole.labels, whole.probabilities)
    assert resumed.labels


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
    for activity in ("train", "evaluation"):
        times = [report.metrics[f"{activity}_seconds"] for report in run.outcome.reports]
        assert 0 < times[0] < times[1]
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "best.ckpt"}


@pytest.fixture
def slow(monkeypatch):
    """Let time pass only where a test says so: `slow(Classifier, "validation_step", 2.0)`."""
    now = [0.0]
    monkeypatch.setattr("training.loop.stopwatch.time.perf_counter", lambda: now[0])

    def delay(owner, name, seconds):
        whole = getattr(owner, name)

        def run(*arguments, **named):
            now[0] += seconds
            return whole(*arguments, **named)

        monkeypatch.setattr(owner, name, run)

    return delay


def test_training_evaluation_and_checkpoints_are_measured_apart(fit, slow):
    slow(Classifier, "training_step", 1.0)  # 4 in each epoch
    slow(Classifier, "on_validation_start", 100.0)
    slow(EpochReporter, "_save", 1000.0)
    first, second = (report.metrics for report in fit().outcome.reports)
    assert [first[f"{name}_seconds"] for name in ACTIVITIES] == [4.0, 100.0, 0.0, 0.0]
    assert [second[f"{name}_seconds"] for name in ACTIVITIES] == [8.0, 200.0, 1000.0, 0.0]


def test_a_resumed_training_adds_to_the_seconds_of_the_checkpoint(fit, slow, tmp_path):
    slow(Classifier, "training_step", 1.0)
    slow(finders, "run_range_test", 50.0)
    auto = {"optimizer": {"name": "sgd", "lr": "auto"}, "backbone": {"name": "test_resnet", "weights": "letters"}}
    fit(folder=tmp_path, **auto, on_report=lambda report: False)
    before, after = (report.metrics for report in fit(folder=tmp_path, **auto).outcome.reports)
    assert after["train_seconds"] == before["train_seconds"] + 4.0
    assert after["finder_seconds"] == before["finder_seconds"] >= 50.0


def test_a_checkpoint_written_before_activities_were_measured_apart_can_be_resumed(fit, tmp_path):
    fit(folder=tmp_path, on_report=lambda report: False)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    state = saved["callbacks"]["EpochReporter"]
    state["train_seconds"] = state.pop("seconds")["train"]
    torch.save(saved, tmp_path / "last.ckpt")
    first, second = (report.metrics for report in fit(folder=tmp_path).outcome.reports)
    assert second["train_seconds"] > first["train_seconds"] > 0


def test_the_peaks_of_training_and_evaluation_are_two_metrics(fit, monkeypatch):
    """An evaluation that takes 300 MB does not show in the training's peak."""
    step = Classifier.validation_step

    def take_memory(self, batch, index):
        assert torch.ones(300 * 2**18).sum() > 0
        step(self, batch, index)

    monkeypatch.setattr(Classifier, "validation_step", take_memory)
    metrics = [report.metrics for report in fit(epochs=2).outcome.reports]
    assert [m for m in metrics if not (m["evaluation_memory_mb"] > m["peak_memory_mb"] + 200)] == []


def test_the_log_has_the_scores_the_rate_and_the_seconds_of_each_epoch(fit, caplog):
    with caplog.at_level("INFO", logger="training"):
        reports = fit(epochs=2).outcome.reports
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Epoch ")]
    assert len(lines) == 2
    for line, report in zip(lines, reports, strict=True):
        assert line.startswith(f"Epoch {report.epoch} of 2: train_loss {report.metrics['train_loss']:.4g}, val_loss ")
        assert f"val_accuracy {report.metrics['val_accuracy']:.4g}" in line
        assert f"lr {report.metrics['lr']:.4g}" in line
        assert " s since the start" in line
