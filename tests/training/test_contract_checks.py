"""The contract checks find what breaks the contract of a technique, and pass what keeps it, as docs/plugins.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from training import plugins, small_trainings
from training.contract_checks import CHECKS
from training.errors import UserError

FILE = """
from typing import ClassVar
import torch
from lightning.pytorch import Callback
from pydantic import Field
from training.contract.technique import Technique


class Growth(Technique):
    examples: ClassVar = ({"growth": {"step": 0.01}},)
    keeps_features: ClassVar = True
    step: float = Field(0.0, ge=0, le=1)

    def apply(self, setup):
        step = self.step

        class Grow(Callback):
            count = 0

            def on_before_optimizer_step(self, trainer, module, optimizer):
                self.count += 1
                for parameter in module.model.parameters():
                    if parameter.grad is not None:
                        parameter.grad.mul_(1 + step * self.count)

            def state_dict(self):
                return {"count": self.count}

            def load_state_dict(self, state):
                self.count = state["count"]

        setup.callbacks.append(Grow())
"""
FREE = "torch.Generator().seed() % 7"  # draws that no seed of a training reaches
MOVE = "next(iter(module.model.parameters())).data.mul_(1.5); parameter.grad"

# Of each: a change of the file, the only check that then fails, and words of its sentence.
BROKEN = {
    "examples that are not legal": ('"step": 0.01', '"step": 2.0', "examples", "less than or equal to 1"),
    "no examples": ('({"growth": {"step": 0.01}},)', "()", "examples", "it has no examples"),
    "an example of another": ('{"growth"', '{"flip": {"probability": 0.5}, "growth"', "examples", "is not growth"),
    "no effect on the set-up": ("setup.callbacks.append(Grow())", "pass", "examples", "changes nothing"),
    "a taken slot": ("step = self.step\n", "step = self.step; setup.criterion = print"
                     "\n", "combinations", "two techniques set TrainingSetup.criterion"),
    "a number that is not used": ("1 + step *", "1 + 0.01 *", "effect", "half of the difference"),
    "a lost state": ('self.count = state["count"]', "pass", "resume", "must be in its state_dict"),
    "its own random numbers": ("step * self.count", f"step * self.count * {FREE}", "resume", "with one seed differ"),
    "other features": ("parameter.grad.mul_", f"{MOVE}.mul_", "features", "Remove the declaration"),
    "a fault of the code": ("self.count += 1", "self.count += None", "effect", "unsupported operand"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(small_trainings.BASE, "epochs", 2)
    yield
    plugins.forget()


def find_broken(path):
    """The first check that fails and what it says; None if all pass."""
    plugins.load([path])
    for check in CHECKS:
        try:
            check("growth")
        except (UserError, TypeError) as error:
            return check.__name__.removeprefix("check_"), str(error)
    return None


SLOW = ("a number that is not used", "a lost state", "its own random numbers", "other features")  # many trainings


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in BROKEN])
def test_what_breaks_the_contract_is_found(name, tmp_path):
    before, after, failing, words = BROKEN[name]
    assert before in FILE
    path = tmp_path / "growth.py"
    path.write_text(FILE.replace(before, after))
    failed, sentence = find_broken(path)
    assert failed == failing
    assert re.search(words, sentence)


def test_a_file_that_keeps_the_contract_passes_every_check(tmp_path):
    (tmp_path / "growth.py").write_text(FILE)
    assert find_broken(tmp_path / "growth.py") is None


def test_a_technique_that_no_plugin_has_is_refused_in_a_sentence():
    for check in CHECKS:
        with pytest.raises(UserError, match="growht: no plugin has it"):
            check("growht")


def test_the_test_of_the_page_runs_and_fails_for_a_technique_without_effect(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    [test] = [
        block for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "contract_checks" in block
    ]
    without = (
        FILE.replace("Growth", "Still").replace("growth", "still").replace("setup.callbacks.append(Grow())", "pass")
    )
    for name, text in (("growth", FILE), ("still", without)):
        (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / f"test_{name}.py").write_text(test.replace("input_noise", name))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "examples"]
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those of this run
    done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "test_still.py" in done.stdout.splitlines()[-2]
    assert "changes nothing in the set-up" in done.stdout
