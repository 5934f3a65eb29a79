"""The examples of the techniques on a real GPU: they train as on a CPU, and go on after a stop; `make gpu`."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Literal

import lightning.pytorch as pl
import pytest
import torch

import training.loop.recorded_passes as recorded_passes
import training.train as training_module
from training.contract.part import Values
from training.examples import list_examples
from training.process.resources import Resources
from training.recipe import Recipe, read_recipe
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


def list_cases() -> list[tuple[str, Values]]:
    cases: list[tuple[str, Values]] = [("baseline", {})]
    for name in Recipe.model_fields:
        if slot_of(Recipe, name).parts and name not in LEFT_OUT:
            cases += [(name, example) for example in list_examples(name)]
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
