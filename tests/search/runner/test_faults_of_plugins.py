"""A fault of a user's own code is one sentence with type, file and line, at the first failure."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest
import ray.tune

from search.cli import main
from search.runner import worker
from search.runner.machines.ray_failures import describe_death
from search.runner.worker import run_trial
from tests.search.runner.test_worker import CONFIG
from training import plugins
from training.contract.own_parts import PARTS
from training.distributed.parallel import _read_error, _write_error
from training.distributed.rank import Rank
from training.recipe import read_recipe

HEAD = """
import sys
from training.contract.technique import Technique

class Unshown(Exception):
    def __str__(self):
        raise ValueError("no text")

class Unpickled(Exception):
    def __init__(self, one, two):
        super().__init__(lambda: one)

class Base(BaseException):
    pass

def again():
    return again()

class Shaky(Technique):
    amount: float = 0.0
    def apply(self, setup):
        {fault}
"""
LINE = HEAD.count("\n", 0, HEAD.index("{fault}")) + 1
FAULTS = {
    "assert False": "AssertionError",
    "assert self.amount == 0, 'amount'": "AssertionError: amount",
    "raise ValueError": "ValueError",
    "raise ValueError('\\n')": "ValueError",
    "raise ValueError('one\\ntwo')": "ValueError: one",
    "raise KeyError('name')": "KeyError: 'name'",
    "raise Unshown": "Unshown: its message cannot be shown",
    "sys.exit()": "SystemExit",
    "sys.exit('bye')": "SystemExit: bye",
    "raise Base('mine')": "Base: mine",
    "raise ExceptionGroup('two', [ValueError()])": "ExceptionGroup: two (1 sub-exception)",
    "raise StopIteration": "StopIteration",
    "raise EOFError": "EOFError",
    "open('/nowhere/file')": "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/file'",
    "self.amount = 2": "ValidationError: 1 validation error for Shaky",
    "raise SystemError('\\udce9')": "SystemError: \\udce9",
}


@pytest.fixture
def shaky(tmp_path):
    """Return a function that loads a technique with a fault, and returns a recipe with it."""

    def load(fault):
        (tmp_path / "own.py").write_text(HEAD.replace("{fault}", fault))
        plugins.load([tmp_path / "own.py"])
        return read_recipe({"data": {"name": "digits", "train_size": 64}, "shaky": {"amount": 1.0}, "epochs": 1})

    yield load
    plugins.forget()


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return a function that runs a trial with a recipe in a worker, and returns the worker's messages."""

    def run(recipe):
        recorded = []
        monkeypatch.setattr(ray.tune, "report", lambda message: recorded.append(json.loads(message["message"])))
        monkeypatch.setattr(worker, "_own_node", lambda: "here")
        # pytest-xdist cannot send a log with half of a character.
        monkeypatch.setattr(logging.getLogger("training"), "propagate", False)
        monkeypatch.setattr("training.train.train", lambda recipe, *_, **__: recipe.shaky.apply(None))
        run_trial({**CONFIG, "recipe": recipe.model_dump(), "folder": str(tmp_path / "0000"), "crashes": 0})
        return recorded

    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_worker_names_the_line_of_an_own_technique_that_failed(fault, shaky, told, tmp_path):
    (message,) = told(shaky(fault))
    place, log = f"{tmp_path}/own.py, line {LINE}", tmp_path / "0000" / "log.txt"
    assert (message["end"], message["reason"]) == ("failed", f"{FAULTS[fault]} in {place}; see {log}")
    assert "Traceback" in log.read_text()


def test_a_worker_that_is_told_to_end_is_not_a_fault_of_an_own_technique(shaky, told, monkeypatch):
    recipe = shaky("pass")
    monkeypatch.setattr(type(recipe.shaky), "apply", lambda *_: (_ for _ in ()).throw(SystemExit(1)))
    with pytest.raises(SystemExit):
        told(recipe)


def test_an_endless_recursion_is_a_fault_too(shaky, told):
    (message,) = told(shaky("again()"))
    assert message["reason"].startswith("RecursionError: maximum recursion depth exceeded in ")
    assert "own.py, line 17; see" in message["reason"]


@pytest.mark.parametrize("fault", ["assert False", "raise Unshown", "sys.exit()", "raise EOFError"])
def test_a_command_names_the_line_of_an_own_technique_that_failed(fault, shaky, tmp_path, monkeypatch, capsys):
    recipe = shaky(fault)
    monkeypatch.setattr(main, "app", lambda **_: recipe.shaky.apply(None))
    assert main._run_command() == 2
    assert capsys.readouterr().err == (
        f"sweep: {tmp_path}/own.py, line {LINE}: it raised {FAULTS[fault]}. Correct the file.\n"
    )


def test_an_error_with_an_empty_message_of_another_device_is_one_of_a_training():
    assert str(_read_error(_write_error(AssertionError(), Rank(1, 2)))).rstrip(": ") == "AssertionError"


def test_the_reason_of_a_dead_worker_is_its_exception_and_not_the_time(tmp_path):
    text = (
        "Failure # 1 (occurred at 2026-11-25)\nray::train() (pid=7)\n  File x.py\nIndexError: list index out of range"
    )
    (tmp_path / "error.txt").write_text(text)
    trial = SimpleNamespace(error_file=str(tmp_path / "error.txt"))
    assert describe_death(trial) == ("IndexError: list index out of range", "worker")
    assert PARTS == {}
