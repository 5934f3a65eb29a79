from __future__ import annotations

import pytest
import torch

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.loop.classifier import Classifier
from training.process.isolation import isolated_process
from training.recipe import read_recipe
from training.techniques.compute.precision import Precision


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

    def watch_validation(self, batch, index):
        step(self, batch, index)
        seen["validation"] |= {column.dtype for column in self.validated[-1][2:]}

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


def test_64_true_and_32_true_agree_except_for_rounding(fit):
    single = fit(epochs=1, optimizer={"name": "sgd", "lr": 0.01}).metrics[0]["train_loss"]
    double = fit(epochs=1, optimizer={"name": "sgd", "lr": 0.01}, precision={"mode": "64-true"}).metrics[0][
        "train_loss"
    ]
    assert single == pytest.approx(double, rel=1e-4)
    assert single != double


def test_16_mixed_is_refused_on_a_cpu(fit):
    with pytest.raises(UserError, match=r"precision\.mode=16-mixed needs a GPU.*Use bf16-mixed or 32-true"):
        fit(precision={"mode": "16-mixed"})


def test_the_scaler_of_16_mixed_starts_and_grows_as_the_recipe_says(monkeypatch):
    monkeypatch.setattr(Precision, "_refuse_what_the_machine_lacks", lambda self, device: None)
    setup = TrainingSetup(torch.nn.Linear(2, 2), "cpu", 10, (4,), 8)
    Precision(mode="16-mixed", init_scale=1024.0, growth_interval=2).apply(setup)
    scaler = setup.plugins[0].scaler
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scales = []
    for loss in (parameter * 1, parameter * 1, parameter * float("inf"), parameter * 1):
        optimizer.zero_grad()
        scaler.scale(loss.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 2048.0, 1024.0, 1024.0]  # doubled after two good steps, halved by the overflow
    assert parameter.item() == pytest.approx(0.7)  # the step with the overflow was skipped


def test_rounding_of_float32_is_set_for_products_and_convolutions_and_ends_with_the_training(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    for mode in ("high", "medium"):
        with isolated_process(0, 1):
            assert not torch.backends.cudnn.allow_tf32
            Precision(float32=mode).apply(TrainingSetup(torch.nn.Identity(), "cuda", 10, (4,), 8))
            assert torch.get_float32_matmul_precision() == mode
            assert torch.backends.cudnn.allow_tf32
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_rounding_of_float32_is_refused_without_tf32(fit, monkeypatch):
    with pytest.raises(UserError, match=r"precision\.float32=high needs a GPU with TF32"):
        fit(precision={"float32": "high"})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    with pytest.raises(UserError, match=r"precision\.float32=medium needs a GPU with TF32"):
        Precision(float32="medium").apply(TrainingSetup(torch.nn.Identity(), "cuda", 10, (4,), 8))


def test_hyperparameters_of_another_mode_are_refused():
    with pytest.raises(UserError, match=r"precision\.float32=high does nothing with precision\.mode=bf16-mixed"):
        read_recipe({"precision": {"mode": "bf16-mixed", "float32": "high"}})
    for field in ({"init_scale": 2.0}, {"growth_interval": 1}):
        with pytest.raises(UserError, match=r"do nothing with precision\.mode=32-true, which scales no loss"):
            read_recipe({"precision": field})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "options",
    [
        {"precision": {"mode": "16-mixed", "init_scale": 1024.0, "growth_interval": 4}},
        {"precision": {"float32": "high"}},
        {"cudnn_benchmark": {"enabled": True}, "channels_last": {"enabled": True}},
        {"compilation": {"backend": "inductor"}},
    ],
)
def test_techniques_that_need_a_gpu_train_on_one(options, tiny_recipe, tmp_path):
    from training.train import Resources, train

    recipe = tiny_recipe(**options, data={"name": "digits", "train_size": 640}, epochs=4)
    reports = train(recipe, tmp_path, resources=Resources(device="cuda")).reports
    assert reports[-1].metrics["train_loss"] < reports[0].metrics["train_loss"]


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
    from training.loop.callbacks import NaNStop

    stop, loss = NaNStop(), torch.ones((), device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            stop.on_train_batch_end(None, None, {"loss": loss}, None, 0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_model_can_be_exported_within_a_training_and_after_it(monkeypatch):
    """Torch cannot read its settings of cuDNN, which it does to trace a model, where only some of their names were set."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    model, images = torch.nn.Linear(2, 2), (torch.zeros(1, 2),)
    with isolated_process(0, 1):
        torch.export.export(model, images)
        Precision(float32="high").apply(TrainingSetup(torch.nn.Identity(), "cuda", 10, (4,), 8))
        torch.export.export(model, images)
    torch.export.export(model, images)
