"""Wrong input to every command: exit code 2, one sentence with a correction, no traceback, and no new files."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import typer.main
from hostile_home import build_home
from rows_data import DATA
from rows_files import FILES
from rows_results import RESULTS
from rows_sweeps import SWEEPS
from rows_train import TRAIN
from rows_values import VALUES

import search.cli.main

TABLES = {**VALUES, **FILES, **DATA, **SWEEPS, **RESULTS, **TRAIN}
ENVIRONMENT = ("MLFLOW_TRACKING_URI", "SWEEP_STORAGE", "SWEEP_COPY_TO", "RAY_ADDRESS")
LONGEST = 700  # characters; a sentence that lists all techniques is the longest


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """The folder of the commands. A row that changes it fails, and the next rows get a new folder."""

    def make() -> Path:
        home = tmp_path_factory.mktemp("hostile")
        build_home(home)
        return home

    return {"make": make, "home": make()}


@pytest.fixture(scope="module")
def command():
    """Build the command line once, because that takes longer than most rows."""
    return typer.main.get_command(search.cli.main.app)


@pytest.fixture(autouse=True)
def nothing_starts(command, monkeypatch):
    """Fail if a command reaches Ray, a training or a server, because it was then not refused."""
    import search.cli.inspect.mlflow_ui
    import search.runner.single_training
    import search.runner.start.prepare
    import spaces.parameters.feasibility

    def refuse(*arguments, **options):
        raise AssertionError("the command was not refused")

    monkeypatch.setattr(search.cli.main, "app", command)
    monkeypatch.setattr(search.runner.start.prepare, "start_ray", refuse)
    monkeypatch.setattr(search.runner.single_training, "_train", refuse)
    monkeypatch.setattr(search.cli.inspect.mlflow_ui, "run_group", refuse)
    monkeypatch.setattr(spaces.parameters.feasibility, "DRAWS", 20)  # instead of 200 random recipes
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def run(line: str, monkeypatch) -> int:
    """Run a command line as a shell would, with variables before the command."""
    words = shlex.split(line)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    monkeypatch.setattr(sys, "argv", ["sweep", *words])
    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        return search.cli.main._run_command()


def take_stock(home: Path) -> dict[str, tuple[int, int, int] | None]:
    """Return every entry below a folder; for files with their mode, size and time of the last change."""
    found: dict[str, tuple[int, int, int] | None] = {}
    waiting = [str(home)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                found[entry.path] = None
                waiting.append(entry.path)
            else:
                now = entry.stat(follow_symlinks=False)
                found[entry.path] = now.st_mode, now.st_size, now.st_mtime_ns
    return found


@pytest.mark.timeout(120, func_only=True)  # without the imports
@pytest.mark.parametrize("row", TABLES)
def test_wrong_input_ends_in_one_sentence_and_leaves_no_file(row, homes, monkeypatch, capfd):
    line, *words = TABLES[row]
    home = homes["home"]
    monkeypatch.chdir(home)
    before = take_stock(home)
    capfd.readouterr()
    code = run(line, monkeypatch)
    said = capfd.readouterr()
    if take_stock(home) != before:
        left = take_stock(home).keys() ^ before.keys()
        homes["home"] = homes["make"]()
        shutil.rmtree(home)
        pytest.fail(f"{line} changed or left {sorted(left) or 'what is in a file'}; it said: {said.err}")
    assert code == 2, said
    assert "Traceback" not in said.out + said.err
    sentence = said.err.removesuffix("\n")
    assert sentence.isprintable(), f"not one line of plain text: {sentence!r}"
    assert sentence.startswith("sweep: ")
    assert sentence[-1] in ".?)", sentence
    assert len(sentence) <= LONGEST
    for word in words:
        assert word in sentence, f"{word!r} is not in: {sentence}"
