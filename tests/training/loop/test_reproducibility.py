"""A recipe gives the same numbers again after any other training, and leaves no state behind."""

from __future__ import annotations

import gc
import random

import numpy as np
import psutil
import pytest
import torch
from torch.backends import cudnn

from training.loop.classifier import Classifier

RANDOM = {
    "mixup": {"alpha": 0.4},
    "augmentation": {"policy": "affine_colour"},
    "optimizer": {"name": "momentum", "lr": 0.02},
}
ANOTHER = {
    "seed": 5,
    "precision": {"mode": "64-true"},
    "optimizer": {"name": "adam"},
    "unfreeze": {"level": "most"},
    "batch_size": 8,
}


def settings():
    return {
        "python": hash(random.getstate()),
        "numpy": hash(np.random.get_state()[1].tobytes()),
        "torch": hash(torch.get_rng_state().numpy().tobytes()),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "products": torch.get_float32_matmul_precision(),
        "convolutions": cudnn.allow_tf32,
        "benchmark": cudnn.benchmark,
        "deterministic": cudnn.deterministic,
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "collector": gc.get_freeze_count(),
    }


def test_the_same_recipe_gives_the_same_numbers_again_after_another_one(fit, load_weights):
    first = fit(**RANDOM)
    again = fit(**RANDOM)
    other = fit(**ANOTHER)
    third = fit(**RANDOM)
    assert first.metrics == again.metrics == third.metrics
    assert other.metrics != first.metrics
    weights = [load_weights(run.folder) for run in (first, third)]
    assert [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])] == []
    for one, two in zip(first.outcome.reports, third.outcome.reports, strict=True):
        assert (one.steps, one.score, one.standard_error) == (two.steps, two.score, two.standard_error)


def test_the_state_of_the_process_changes_nothing(fit):
    first = fit(**RANDOM)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    torch.set_default_dtype(torch.float64)
    try:
        assert fit(**RANDOM).metrics == first.metrics
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("end", ["completed", "stopped", "diverged", "refused"])
def test_no_training_leaks_its_state_however_it_ends(end, fit):
    from training.errors import UserError

    torch.set_float32_matmul_precision("high")
    cudnn.allow_tf32, cudnn.benchmark = True, True
    try:
        before = settings()
        if end == "refused":
            with pytest.raises(UserError):
                fit(precision={"mode": "16-mixed"})
        else:
            recipe = (
                {"optimizer": {"name": "sgd", "lr": 1e30}} if end == "diverged" else {"precision": {"mode": "64-true"}}
            )
            assert fit(**recipe, on_report=lambda report: end != "stopped").state == end
        assert settings() == before
    finally:
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32, cudnn.benchmark = True, False


def test_numeric_settings_have_their_defaults_inside_a_training(fit, monkeypatch):
    seen = []
    step = Classifier.training_step

    def look(self, batch, index):
        seen.append((torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark))
        return step(self, batch, index)

    monkeypatch.setattr(Classifier, "training_step", look)
    torch.set_float32_matmul_precision("medium")
    cudnn.allow_tf32, cudnn.benchmark = True, True
    try:
        fit(epochs=1)
    finally:
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32, cudnn.benchmark = True, False
    assert set(seen) == {("highest", False, False)}


def test_a_finished_training_leaves_no_tensors_and_no_memory_behind(fit):
    def tensors():
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    fit(batch_size=8)
    gc.collect()
    before, memory = tensors(), psutil.Process().memory_info().rss
    for end in ("completed", "diverged", "completed"):
        rate = 1e30 if end == "diverged" else 1e-3
        assert fit(batch_size=8, optimizer={"name": "momentum", "lr": rate}).state == end
    # No garbage collection is needed here, because the training has done it.
    assert tensors() <= before
    assert psutil.Process().memory_info().rss - memory < 30 * 2**20
