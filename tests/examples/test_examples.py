"""The examples run."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from spaces.load import load_space
from tests.analysis.made_up import SPACE, send, simulate, write

TINY = """
format: 1
recipe:
  data: {name: digits, train_size: 64}
  backbone: {name: test_resnet, weights: none}
  epochs: 2
  label_smoothing: {alpha: {uniform: [0.0, 0.3]}}
search: {trials: 4, scheduler: {name: none}}
"""
EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name, *arguments, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_by_a_test():
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")} == {
        "read_sweep.py",
        "search_own_images.py",
        "sweep_from_python.ipynb",
        "train_recipe.py",
    }


def test_a_recipe_is_trained_from_python(capsys):
    # In this process, which has torch loaded already.
    runpy.run_path(str(EXAMPLES / "train_recipe.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert [f"epoch {epoch}:" in printed for epoch in (1, 2, 3)] == [True] * 3
    assert "completed; the best epoch is" in printed


def test_a_finished_sweep_is_read_as_tables(tmp_path, capsys, monkeypatch):
    (tmp_path / "space.yaml").write_text(SPACE)
    space, uri = load_space(tmp_path / "space.yaml"), f"sqlite:///{tmp_path}/mlflow.db"
    events = simulate(space).events
    send(uri, "made-up-1", space, events, ledger=write(tmp_path, "made-up-1", space, events))
    monkeypatch.setattr(sys, "argv", ["read_sweep.py", "made-up-1", uri])
    runpy.run_path(str(EXAMPLES / "read_sweep.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "made-up-1: 30 trials" in printed
    (smoothing,) = (line for line in printed.splitlines() if "label_smoothing" in line)
    assert "useful" in smoothing


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_own_images_are_searched_and_reported(tmp_path):
    for number in (1, 2):  # a user runs it again
        printed = run_example("search_own_images.py", folder=tmp_path)
        assert "6 trials after" in printed
        assert (tmp_path / "reports" / f"shapes-{number}.html").exists()
    assert len(list((tmp_path / "shapes" / "circle").glob("*.png"))) == 60


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_notebook_searches_reports_confirms_and_exports(tmp_path):
    notebook = nbformat.read(EXAMPLES / "sweep_from_python.ipynb", as_version=4)
    (tmp_path / "tiny.yaml").write_text(TINY)
    notebook.cells[1].source = 'space, trials, top, seeds = "tiny.yaml", 4, 1, 2'
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [cell.outputs[-1]["data"]["text/plain"] for cell in notebook.cells if cell.get("outputs")]
    assert shown[0] == "Result('tiny-1', completed, 4 trials)"
    assert "Interval(mean=" in shown[3]
    assert {path.name for path in (tmp_path / "exports").iterdir()} == {"tiny-1", "tiny-1-confirm"}
    assert (tmp_path / "reports" / "tiny-1.html").exists()
