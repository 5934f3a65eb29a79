from __future__ import annotations

import pytest
import torch

from training.classifier import Classifier
from training.errors import UserError


@pytest.fixture
def dtypes(monkeypatch):
    """Number types of the images, the logits and the targets of training steps, and the validation losses."""
    seen: dict[str, set[torch.dtype]] = {"images": set(), "logits": set(), "loss": set(), "validation": set()}
    forward, step = Classifier.training_step, Classifier.validation_step

    def watch(self, batch, index):
        seen["images"].add(batch[0].dtype)
        handle = self.model.register_forward_hook(lambda model, inputs, output: seen["logits"].add(output.dtype))
        loss = forward(self, batch, index)
        handle.remove()
        seen["loss"].add(loss.dtype)
        return loss

    def watch_validation(self, batch, index, dataloader_idx=0):
        step(self, batch, index, dataloader_idx)
        seen["validation"] |= {column.dtype for columns in self.validated for column in columns[2:]}

    monkeypatch.setattr(Classifier, "training_step", watch)
    monkeypatch.setattr(Classifier, "validation_step", watch_validation)
    return seen


MIXED = {"mixup": {"alpha": 0.4}, "label_smoothing": {"alpha": 0.1}, "epochs": 1}


def weight_types(load_weights, run):
    return {value.dtype for value in load_weights(run.folder).values() if value.is_floating_point()}


def test_bf16_mixed_computes_in_bfloat16_and_keeps_float32_weights(fit, dtypes, load_weights):
    run = fit(precision={"mode": "bf16-mixed"}, **MIXED)
    assert dtypes["logits"] == {torch.bfloat16}
    assert dtypes["loss"] == {torch.float32}
    assert dtypes["validation"] == {torch.float32}
    assert weight_types(load_weights, run) == {torch.float32}


def test_64_true_is_float64_from_the_images_to_the_weights(fit, dtypes, load_weights):
    run = fit(precision={"mode": "64-true"}, **MIXED)
    assert dtypes == {part: {torch.float64} for part in dtypes}
    assert weight_types(load_weights, run) == {torch.float64}
    assert torch.get_default_dtype() == torch.float32


def test_32_true_is_float32_throughout(fit, dtypes, load_weights):
    run = fit(**MIXED)
    assert dtypes == {part: {torch.float32} for part in dtypes}
    assert weight_types(load_weights, run) == {torch.float32}


def test_64_true_and_32_true_agree_but_for_rounding(fit):
    single = fit(epochs=1, optimizer={"name": "sgd", "lr": 0.01}).metrics[0]["train_loss"]
    double = fit(epochs=1, optimizer={"name": "sgd", "lr": 0.01}, precision={"mode": "64-true"}).metrics[0][
        "train_loss"
    ]
    assert single == pytest.approx(double, rel=1e-4)
    assert single != double


def test_16_mixed_is_refused_on_a_cpu(fit):
    with pytest.raises(UserError, match=r"precision\.mode=16-mixed needs a GPU.*Use bf16-mixed or 32-true"):
        fit(precision={"mode": "16-mixed"})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_16_mixed_trains_on_a_gpu(tiny_recipe, tmp_path):
    from training.train import Resources, train

    recipe = tiny_recipe(precision={"mode": "16-mixed"}, data={"name": "digits", "train_size": 640}, epochs=4)
    reports = train(recipe, tmp_path, resources=Resources(device="cuda")).reports
    assert len(reports) == 4
    assert reports[-1].metrics["train_loss"] < reports[0].metrics["train_loss"]
    assert reports[-1].metrics["peak_memory_mb"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_nan_stop_does_not_wait_for_the_gpu():
    from training.callbacks import NaNStop

    stop, loss = NaNStop(), torch.ones((), device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            stop.on_train_batch_end(None, None, {"loss": loss}, None, 0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
