"""A working folder of a stranger: its Python files are named as modules that we import, and none of them runs."""

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
NAMED = 150


@pytest.fixture
def traps(tmp_path):
    """A folder of modules that write their names into a file when they are imported."""
    first = ["mlflow", "starlette", "uvicorn", "IPython", "torch_xla", "tensorboard", "yaml", "numpy", "torch", "ray"]
    others = sorted({*sys.stdlib_module_names, *packages_distributions()} - {*first})
    for name in [*first, *others[:: len(others) // NAMED]]:
        if name.isidentifier():
            text = f"open({str(tmp_path / 'ran')!r}, 'a').write({name + ' '!r})\nraise ImportError({name!r})\n"
            (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def names_that_ran(folder):
    return (folder / "ran").read_text() if (folder / "ran").exists() else ""


# It is also the one test of `make test` in which a whole sweep runs on Ray.
@pytest.mark.timeout(500)
def test_a_sweep_and_its_workers_import_nothing_from_the_working_folder(traps):
    values = ["epochs=3", "data.train_size=40", "backbone.weights=none"]
    command = [PROGRAMS / "sweep", "run", "quick", *values, "--trials", "2"]
    done = subprocess.run(command, cwd=traps, capture_output=True, text=True, timeout=400, check=False)
    assert names_that_ran(traps) == ""
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_ui_imports_nothing_from_the_working_folder(traps):
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{traps}/mlflow.db").create_experiment("mine")
    command = [PROGRAMS / "sweep", "ui", "--tracking-uri", f"sqlite:///{traps}/mlflow.db", "--port", "5700"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=traps, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stdout.readline, "")
            assert any(line.startswith("MLflow UI:") for line in lines)
        finally:
            server.terminate()
    assert names_that_ran(traps) == ""
