"""The examples of the techniques on a real GPU: they train as on a CPU, and go on after a stop; `make gpu`."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from PIL import Image

import training.loop.recorded_passes as recorded_passes
import training.train as training_module
from training.contract.part import Values
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.evaluate import predict_part, restore_model
from training.examples import list_examples
from training.loop.checkpoint import read_checkpoint
from training.loop.classifier import Classifier
from training.process.resources import Resources
from training.recipe import Recipe, read_recipe
from training.resolve import resolve_recipe
from training.schema import slot_of
from training.small_trainings import is_legal, read_all_weights
from training.train import train

pytestmark = [pytest.mark.gpu]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic with it, and reads it only once

TINY: Values = {
    "data": {"name": "digits", "train_size": 64},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "epochs": 3,
    "batch_size": 16,
    "optimizer": {"name": "momentum", "lr": 0.01},
}
# Other tests have their files, several devices, or a longer training.
LEFT_OUT = {"data", "data_parallel", "distillation", "compilation"}
RANDOM_ON_THE_DEVICE = {"drop_path", "head_dropout", "lora"}  # a GPU draws other numbers than a CPU


def has_libraries(example: Values) -> bool:
    return example.get("optimizer", {}).get("name") != "adam8bit" or find_spec("bitsandbytes") is not None


def list_cases() -> list[tuple[str, Values]]:
    cases: list[tuple[str, Values]] = [("baseline", {})]
    for name in Recipe.model_fields:
        if slot_of(Recipe, name).parts and name not in LEFT_OUT:
            cases += [(name, example) for example in list_examples(name) if has_libraries(example)]
    return cases


def case_name(value: object) -> str:
    return str(value).translate(str.maketrans("", "", "{}'"))


every_example = pytest.mark.parametrize(("name", "values"), list_cases(), ids=case_name)


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def run(values: Values, folder: Path, device: Literal["cpu", "cuda"] = "cuda", stop_after: int = 0) -> list[float]:
    """Train, and return the training loss of each epoch; with `stop_after`, stop after this epoch and go on."""
    recipe, resources = read_recipe({**TINY, **values}), Resources(device=device)
    folder.mkdir(exist_ok=True)
    if stop_after:
        train(recipe, folder, resources=resources, on_report=lambda report: report.epoch < stop_after)
    outcome = train(recipe, folder, resources=resources)
    assert outcome.state == "completed"
    return [report.metrics["train_loss"] for report in outcome.reports]


@every_example
def test_an_example_trains_on_a_gpu_as_on_a_cpu(name, values, tmp_path):
    if name in ("precision", "cudnn_benchmark"):
        pytest.skip("only a GPU can do it")
    ours, theirs = run(values, tmp_path / "gpu"), run(values, tmp_path / "cpu", "cpu")
    # Later epochs depend on the last bits of the first: its steps enlarge them, those of rmsprop by a thousand times.
    assert ours[0] == pytest.approx(theirs[0], rel=0.3 if name in RANDOM_ON_THE_DEVICE else 0.01)


@every_example
def test_an_example_goes_on_after_a_stop_on_a_gpu_as_if_there_had_been_none(name, values, tmp_path):
    whole, stopped = run(values, tmp_path / "whole"), run(values, tmp_path / "stopped", stop_after=1)
    assert stopped[-1] == whole[-1]
    assert torch.equal(read_all_weights(tmp_path / "stopped"), read_all_weights(tmp_path / "whole"))


@pytest.mark.parametrize("mode", ["bf16-mixed", "16-mixed"])
@every_example
def test_an_example_trains_in_half_precision_on_a_gpu(name, values, mode, tmp_path):
    half = {**TINY, **values, "precision": {"mode": mode}}
    if "precision" in values or not is_legal(half):
        pytest.skip("it has a precision of its own")
    assert run(half, tmp_path / "half")[0] == pytest.approx(run(values, tmp_path / "whole")[0], rel=0.2)


@pytest.fixture
def always_recorded(monkeypatch):
    """Record after two steps, and keep each recording; the fixture is the list of them."""
    made: list[recorded_passes.Recording] = []

    class Counted(recorded_passes.Recording):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            made.append(self)

    for name, value in {
        "FEWEST_STEPS": 0,
        "SETTLING": 1,
        "MEASURED": 1,
        "WORTHWHILE": 1e9,
        "Recording": Counted,
    }.items():
        monkeypatch.setattr(recorded_passes, name, value)
    return made


NOT_RECORDED = {"accumulation", "activation_checkpointing", "progressive_resizing", "sam"}


@every_example
def test_an_example_trains_with_recorded_passes_as_without_them(name, values, tmp_path, monkeypatch, always_recorded):
    recorded = run(values, tmp_path / "recorded")
    assert bool(always_recorded) == (name not in NOT_RECORDED)
    monkeypatch.setattr(recorded_passes, "FEWEST_STEPS", 10**6)
    count = len(always_recorded)
    assert recorded == pytest.approx(run(values, tmp_path / "usual"), rel=1e-3)
    assert len(always_recorded) == count


@every_example
def test_a_recorded_training_goes_on_after_a_stop_as_if_there_had_been_none(name, values, tmp_path, always_recorded):
    whole, stopped = run(values, tmp_path / "whole"), run(values, tmp_path / "stopped", stop_after=1)
    assert stopped[-1] == whole[-1]


def test_memory_that_is_needed_otherwise_is_not_recorded(tmp_path, monkeypatch, always_recorded):
    monkeypatch.setattr(recorded_passes, "LARGEST_SHARE", 0.0)
    run({}, tmp_path / "run")
    assert not always_recorded


class Waits(pl.Callback):
    """Lets torch warn of each wait for the GPU between the first and the last step of an epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, *others: object) -> None:
        torch.cuda.set_sync_debug_mode("default" if trainer.is_last_batch else "warn")


@every_example
def test_a_training_step_does_not_wait_for_the_gpu(name, values, tmp_path, monkeypatch):
    make = training_module.make_trainer
    monkeypatch.setattr(
        training_module,
        "make_trainer",
        lambda plan, callbacks, *rest, **options: make(plan, [*callbacks, Waits()], *rest, **options),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.use_deterministic_algorithms(False)  # these may wait
            run(values, tmp_path / "run")
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = Counter(f"{one.filename}:{one.lineno}" for one in caught if "synchronizing" in str(one.message))
    assert not waits


def make_photos(folder: Path, count: int = 24) -> Values:
    """Write smooth random JPEG files of two sizes in two classes; return the recipe's `data`."""
    random = np.random.default_rng(0)
    for number in range(count):
        kind, size = folder / "ab"[number % 2], (120, 90) if number % 3 else (64, 100)
        kind.mkdir(parents=True, exist_ok=True)
        blobs = Image.fromarray(random.integers(40, 220, (5, 5, 3), dtype=np.uint8))
        blobs.resize(size, Image.Resampling.BICUBIC).save(kind / f"{number}.jpg", quality=95)
    return {"name": "image_folder", "root": str(folder)}


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs DALI")
def test_dali_decodes_and_changes_images_on_a_gpu_as_on_a_cpu(tmp_path):
    values = {"data": make_photos(tmp_path), "batch_size": 6, "preprocessing": {"image_size": 48}}
    for changes in ({}, {"random_crop": {"name": "resized"}, "flip": {"probability": 0.5}}):
        recipe = read_recipe({**values, **changes, "augmentation": {"policy": "affine_colour", "backend": "dali"}})
        data = load_data(recipe.data)
        recipe = resolve_recipe(recipe, data, "cuda")
        found = []
        for device in ("cuda", "cpu"):
            loaders = make_loaders(data, recipe, workers=2, device=device)
            try:
                found.append(torch.cat([images.cpu() for images, _ in loaders.train]))
            finally:
                loaders.close()
        # In units of the standard deviation of the pixels; the JPEG decoders round differently.
        assert (found[0] - found[1]).abs().mean() < 0.05


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="needs DALI")
def test_a_training_with_dali_on_a_gpu_goes_on_after_a_stop(tmp_path):
    values = {"data": make_photos(tmp_path / "photos"), "augmentation": {"policy": "affine_colour", "backend": "dali"}}
    whole = run({**values, "batch_size": 4}, tmp_path / "whole")
    assert run({**values, "batch_size": 4}, tmp_path / "stopped", stop_after=1) == whole


def test_distillation_trains_on_a_gpu_as_on_a_cpu(tmp_path):
    run({}, tmp_path / "teacher", "cpu")
    student = {"distillation": {"teacher": str(tmp_path / "teacher" / "best.ckpt")}}
    ours, theirs = run(student, tmp_path / "gpu"), run(student, tmp_path / "cpu", "cpu")
    assert ours[0] == pytest.approx(theirs[0], rel=0.01)


def test_a_gpu_predicts_as_a_cpu(tmp_path):
    run({}, tmp_path, "cpu")
    saved = read_checkpoint(tmp_path / "best.ckpt")
    recipe = read_recipe(saved["recipe"])
    data = load_data(recipe.data)
    model = restore_model(recipe, saved["state_dict"], len(data.classes))
    logits = [predict_part(model, data.val, recipe, device=device)[0] for device in ("cuda", "cpu")]
    torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("place", ["training_step", "validation_step"])
def test_a_gpu_without_memory_ends_a_training_and_leaves_the_process_usable(place, tmp_path, monkeypatch):
    before = run({}, tmp_path / "before")
    step = getattr(Classifier, place)

    def fill_memory(self: Classifier, *batch: object) -> object:
        torch.empty(2**50, device="cuda")
        return step(self, *batch)

    monkeypatch.setattr(Classifier, place, fill_memory)
    with pytest.raises(torch.OutOfMemoryError):
        run({}, tmp_path / "full")
    monkeypatch.undo()
    assert run({}, tmp_path / "after") == before


def test_the_finder_of_the_batch_size_stays_within_a_share_of_the_gpu(tmp_path):
    values = {
        **TINY,
        "data": {"name": "digits"},
        "backbone": {"name": "resnet18", "weights": "none"},
        "preprocessing": {"image_size": 224},
        "batch_size": "auto",
        "epochs": 1,
    }
    total = torch.cuda.get_device_properties(0).total_memory
    resources = Resources(device="cuda", gpu_share=1700 * 2**20 / total)  # 600 MB of it are CUDA's own
    outcome = train(read_recipe(values), tmp_path, resources=resources)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert 2 <= outcome.recipe.batch_size < 1000
    assert outcome.reports[-1].metrics["peak_memory_mb"] < 1100
