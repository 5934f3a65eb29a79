"""The examples run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spaces.load import load_space
from tests.analysis.made_up import SPACE, send, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name, *arguments, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_by_a_test():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "read_sweep.py",
        "search_own_images.py",
        "train_recipe.py",
    }


def test_a_recipe_is_trained_from_python(tmp_path):
    printed = run_example("train_recipe.py", folder=tmp_path)
    assert [f"epoch {epoch}:" in printed for epoch in (1, 2, 3)] == [True] * 3
    assert "completed; the best epoch is" in printed


def test_a_finished_sweep_is_read_as_tables(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    space, uri = load_space(tmp_path / "space.yaml"), f"sqlite:///{tmp_path}/mlflow.db"
    send(uri, "made-up-1", space, simulate(space).events)
    printed = run_example("read_sweep.py", "made-up-1", uri, folder=tmp_path)
    assert "made-up-1: 30 trials" in printed
    (smoothing,) = (line for line in printed.splitlines() if "label_smoothing" in line)
    assert "useful" in smoothing


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_own_images_are_searched_and_reported(tmp_path):
    printed = run_example("search_own_images.py", folder=tmp_path)
    assert "6 trials after" in printed
    assert (tmp_path / "reports" / "shapes.html").exists()
    assert len(list((tmp_path / "shapes" / "circle").glob("*.png"))) == 60
