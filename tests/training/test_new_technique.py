"""A technique is added to this project in four places: a file, a field, lines of the full space, and a test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "input_noise"

FILE = '''"""Input noise: add Gaussian noise to training images (Bishop 1995, section 2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class InputNoise(Technique):
    interactions: ClassVar[str] = "It comes before mixing."
    examples: ClassVar[Examples] = ({"input_noise": {"strength": 0.1}},)

    strength: float = Field(0.0, ge=0, le=1, description="Standard deviation of the noise; 0: none.")

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        setup.batch_transforms.append(
            lambda images, labels: (images + self.strength * torch.randn(images.shape), labels)
        )
'''
LINES = """
  input_noise:
    choice:
      - {strength: 0.0}
      - {strength: {uniform: [0.01, 0.5]}}
"""
TEST = """import pytest
import timm
import torch

from training.contract.setup import TrainingSetup
from training.techniques.data.input_noise import InputNoise


def test_noise_has_the_given_strength():
    setup = TrainingSetup(timm.create_model("test_resnet", num_classes=10), "cpu", 10, (4, 4), 8)
    InputNoise(strength=0.5).apply(setup)
    images, _ = setup.batch_transforms[0](torch.zeros(8, 3, 32, 32), torch.zeros(8))
    assert float(images.std()) == pytest.approx(0.5, rel=0.05)
"""
# Tests that look at every technique.
CHECKS = (
    "tests/training/techniques/test_input_noise.py",
    f"tests/training/test_recipe_contract.py::test_a_technique_is_off_only_with_its_defaults[{NAME}]",
    "tests/training/test_recipe_contract.py::test_a_recipe_survives_json",
    "tests/training/test_every_hyperparameter.py::"
    f"test_recipes_that_differ_in_one_hyperparameter_train_differently[{NAME}.strength]",
    f"tests/training/loop/test_resume.py::test_a_stopped_training_continues_to_the_same_numbers[{NAME}]",
    "tests/analysis/report/test_technique_cards.py::"
    f"test_every_technique_has_its_source_its_interactions_and_its_domain[{NAME}]",
    "tests/spaces/reading/test_space_files.py::test_every_technique_of_the_recipe_is_searched_in_the_full_space",
)


def add_after(path: Path, line: str, text: str) -> None:
    before, found, after = path.read_text().partition(line)
    assert found
    path.write_text(f"{before}{line}{text}{after}")


@pytest.mark.slow
def test_a_technique_is_added_in_four_places_and_passes_the_tests_of_all_techniques(tmp_path):
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("training", "spaces", "ledger", "analysis", "search", "benchmarks", "docs", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "training/techniques/data/input_noise.py").write_text(FILE)
    recipe = tmp_path / "training/recipe.py"
    add_after(
        recipe,
        "from training.techniques.data.fmix import FMix\n",
        "from training.techniques.data.input_noise import InputNoise\n",
    )
    add_after(
        recipe, "    random_erasing: RandomErasing = RandomErasing()\n", "    input_noise: InputNoise = InputNoise()\n"
    )
    add_after(tmp_path / "spaces/full.yaml", "\nrecipe:\n", LINES)
    (tmp_path / "tests/training/techniques/test_input_noise.py").write_text(TEST)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CHECKS],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]
    measured = "from benchmarks.techniques import VARIANTS; print([v for v in VARIANTS if 'input_noise' in v])"
    run = subprocess.run([sys.executable, "-c", measured], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[{'input_noise': {'strength': 0.1}}]"
