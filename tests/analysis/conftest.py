from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from analysis.export.bundle import export_model
from analysis.export.summary import Provenance
from analysis.loading import load
from ledger.tables import Sweep
from search.tracking import writer as tracking
from spaces.load import load_space
from tests.analysis.made_up import OUTSIDE, SPACE, send, simulate, write
from training.data.load_data import load_data
from training.loop.checkpoint import read_checkpoint
from training.recipe import read_recipe
from training.train import train


@pytest.fixture(scope="session")
def make_export(tmp_path_factory):
    """Train a small recipe and export it: `make_export(backbone={...})`."""

    def make(**fields) -> Path:
        folder = tmp_path_factory.mktemp("export")
        tiny = {"data": {"name": "digits", "train_size": 200}, "epochs": 2, "batch_size": 16}
        recipe = read_recipe({**tiny, "backbone": {"name": "test_resnet", "weights": "letters"}, **fields})
        (folder / "training").mkdir()
        outcome = train(recipe, folder / "training")
        last = outcome.reports[-1]
        source = Provenance(
            metrics=outcome.reports[last.best_epoch - 1].metrics,
            metric="val_accuracy",
            score=last.score,
            standard_error=last.standard_error,
            best_epoch=last.best_epoch,
            classes=list(outcome.classes),
            **OUTSIDE,
            threads=torch.get_num_threads(),
        )
        weights = read_checkpoint(folder / "training" / "best.ckpt")["state_dict"]
        export_model(outcome.recipe, weights, source, folder / "export")
        return folder / "export"

    return make


@pytest.fixture(scope="session")
def exported(make_export):
    return make_export()


@pytest.fixture(scope="session")
def validation_files(tmp_path_factory, exported):
    """Write the validation images as files, with a folder for each class."""
    from spaces.load import load_recipe

    folder = tmp_path_factory.mktemp("files")
    part = load_data(load_recipe(exported / "recipe.yaml").data).val
    for number, (label, image) in enumerate(zip(part.labels, part.images, strict=True)):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / str(label) / f"{number:03d}.png")
    return folder


@pytest.fixture
def stranger(tmp_path):
    """Run Python code in a process that cannot import this project, and return its output."""
    import subprocess
    import sys

    block = (
        "import sys, importlib.abc\n"
        "class Block(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('training', 'spaces', 'analysis', 'search'):\n"
        "            raise ImportError(name + ' is not known here')\n"
        "sys.meta_path.insert(0, Block())\n"
    )

    def run(code: str, folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", block + code],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=200,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("space") / "made-up.yaml"
    path.write_text(SPACE)
    return load_space(path)


SWEEPS = {"made-up-1": (0, None), "made-up-2": (1, None), "begun": (0, 3)}  # seed, number of events


@pytest.fixture(scope="session")
def storage(tmp_path_factory, space) -> Path:
    """Create two sweeps of one space, and a sweep without completed trials."""
    found = tmp_path_factory.mktemp("storage")
    for name, (seed, count) in SWEEPS.items():
        write(found, name, space, simulate(space, seed).events[:count])
    return found


@pytest.fixture(scope="session")
def uri(tmp_path_factory, space) -> str:
    """Create a store with the runs of these sweeps, without their ledgers."""
    found = f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking, "FLUSH_SECONDS", 0.02)
        for name, (seed, count) in SWEEPS.items():
            send(found, name, space, simulate(space, seed).events[:count], "interrupted" if count else "completed")
    return found


@pytest.fixture(scope="session")
def sweep(storage) -> Sweep:
    return load("made-up-1", storage=storage)
