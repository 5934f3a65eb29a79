"""What loads slow libraries: no command waits for those that it does not need, and `training` runs without Ray and MLflow."""

import subprocess
import sys

import pytest

# What runs, and the libraries that it must not import.
LIGHT = {
    "the command line": ("import search.cli.main", "torch ray mlflow optuna lightning timm pydantic numpy"),
    "the API for notebooks": ("import analysis", "pandas"),
    "a recipe": ("import training.recipe", "torch cv2 albumentations PIL"),
    "a space": ("from spaces.load import load_space; load_space('card')", "torch optuna numpy ray timm"),
    "the backbones of the bundled spaces": (
        "from spaces.load import bundled_names, load_space\n"
        "from spaces.reading.known_backbones import check_backbones\n"
        "[check_backbones(load_space(name).recipe) for name in bundled_names()]",
        "timm",
    ),
    "the cards of techniques": (
        "from analysis.report.technique_cards import read_cards; read_cards()",
        "torch optuna numpy ray timm",
    ),
    "the pace of trials": ("import search.core.pace", "torch lightning sklearn"),
    "the checks of a space that needs no weights": (
        "from pathlib import Path; from spaces.load import load_space\n"
        "from ledger.settings import Settings; from search.runner.start.prepare import check_early\n"
        "check_early(load_space('quick'), Path('.'), Settings(), print)",
        "torch",
    ),
    "a training": ("import training.train", "ray mlflow optuna albumentations"),
}


@pytest.mark.parametrize("name", LIGHT)
def test_slow_libraries_are_imported_only_where_they_are_needed(name, tmp_path):
    program, libraries = LIGHT[name]
    code = f"{program}\nimport sys; print([one for one in {libraries.split()} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr
