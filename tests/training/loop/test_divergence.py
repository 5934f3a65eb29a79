from __future__ import annotations

import pytest
import torch

from training.errors import Diverged
from training.loop.callbacks import NaNStop
from training.loop.classifier import Classifier


def test_a_nan_loss_ends_the_training_at_once(fit, monkeypatch):
    steps = []
    judge = NaNStop.on_train_batch_end

    def count(self, trainer, module, outputs, batch, index):
        steps.append(float(outputs["loss"]))
        judge(self, trainer, module, outputs, batch, index)

    monkeypatch.setattr(NaNStop, "on_train_batch_end", count)
    run = fit(batch_size=4, optimizer={"name": "sgd", "lr": 1e30})
    assert run.state == "diverged"
    assert run.outcome.reports == []
    assert len(steps) <= 3  # the epoch has 16 steps
    assert list(run.folder.iterdir()) == []


def test_epochs_before_the_divergence_stay_reported(fit, monkeypatch):
    step = Classifier.training_step

    def diverge(self, batch, index):
        return step(self, batch, index) * (float("nan") if self.current_epoch == 2 else 1)

    monkeypatch.setattr(Classifier, "training_step", diverge)
    heard = []
    run = fit(epochs=4, on_report=lambda report: heard.append(report.epoch) or True)
    assert run.state == "diverged"
    assert [report.epoch for report in run.outcome.reports] == heard == [1, 2]
    assert (run.folder / "best.ckpt").exists()


def test_a_nan_validation_loss_gives_no_report(fit):
    # One step per epoch: its loss is finite, but the weights after the step give a NaN.
    run = fit(batch_size=64, epochs=1, optimizer={"name": "sgd", "lr": 1e30})
    assert run.state == "diverged"
    assert run.outcome.reports == []


def test_a_nan_gradient_does_not_end_the_training(fit, monkeypatch):
    # Under loss scaling such steps are normal, and skipped.
    def spoil(self):
        for parameter in self.parameters():
            parameter.grad.fill_(float("nan"))

    monkeypatch.setattr(Classifier, "on_after_backward", spoil)
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, closure: closure())
    assert fit(epochs=1).state == "completed"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_every_kind_of_infinite_loss_is_detected(value):
    with pytest.raises(Diverged):
        NaNStop().on_train_batch_end(None, None, {"loss": torch.tensor(value)}, None, 0)
