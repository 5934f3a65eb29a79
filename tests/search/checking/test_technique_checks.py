"""`sweep techniques --check FILE` finds what breaks the contract of a technique, and passes what keeps it."""

from __future__ import annotations

import re

import pytest

from search.checking.technique_checks import check_file
from search.cli.main import app
from training import contract_checks, plugins
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
    "a fault of the code": ("self.count += 1", "self.count += None", "effect", r"raised TypeError: .* in line 21"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(contract_checks.BASE, "epochs", 2)
    yield
    plugins.forget()


def check(path):
    plugins.load([path])
    return {one.name.removesuffix(" of growth"): one for one in check_file(str(path))}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_contract_is_found(name, tmp_path):
    before, after, failing, words = BROKEN[name]
    assert before in FILE
    path = tmp_path / "growth.py"
    path.write_text(FILE.replace(before, after))
    checks = check(path)
    failed = [word for word, one in checks.items() if not one.is_ok]
    assert failed[0] == failing, checks
    assert re.search(words, checks[failing].sentence)
    assert "\n" not in checks[failing].sentence


def test_a_file_that_keeps_the_contract_passes_every_check(tmp_path, capsys):
    path = tmp_path / "growth.py"
    path.write_text(FILE)
    app(["techniques", "--check", str(path)], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == [
        "defaults", "examples", "combinations", "effect", "resume", "features"
    ]  # fmt: skip
    assert [line for line in lines[:-1] if not line.startswith("ok")] == []
    path.write_text(FILE.replace('"step": 0.01', '"step": 2.0'))
    with pytest.raises(UserError, match=r"1 check failed \(examples of growth\)"):
        app(["techniques", "--check", str(path)], standalone_mode=False)
