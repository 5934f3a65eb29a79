"""What a killed driver left running is ended at the next resume, and nothing else is."""

import json
import os
import shutil
import subprocess

import psutil
import pytest

from search.display.sweep_display import SweepDisplay
from search.display.terminal import make_console
from search.runner.machines.ray_process import end_left, write_own
from search.runner.sweep import resume_sweep
from tests.ledger.test_folder import make_sweep
from training.errors import UserError


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a process with this name."""
    started = []

    def run(name):
        shutil.copy(shutil.which("sleep"), tmp_path / name)
        started.append(subprocess.Popen([tmp_path / name, "60"]))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def is_alive(process):
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_a_resume_ends_the_agents_that_a_killed_driver_left(tmp_path, start):
    folder = make_sweep(tmp_path / "sweeps", "mine")
    agent = start("ray::Agent")
    write_own(folder.processes)
    with pytest.raises(UserError, match="the line that describes the sweep is missing"):
        resume_sweep(folder, SweepDisplay(make_console()))
    assert not is_alive(agent)
    assert not folder.processes.exists()


def test_another_program_and_a_process_that_has_the_number_of_an_earlier_one_are_not_ended(tmp_path, start):
    file = tmp_path / "processes.json"
    other, later = start("trainer"), start("ray::Agent")
    file.write_text(json.dumps([[other.pid, psutil.Process(other.pid).create_time()], [later.pid, 1.5]]))
    end_left(file)
    assert is_alive(other)
    assert is_alive(later)


def test_a_named_pipe_for_a_record_of_processes_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "processes.json")
    end_left(tmp_path / "processes.json")


@pytest.mark.parametrize(
    "text", ["", "{}", "7", "[[1]]", '[["x", 1]]', "[null]", "[[1e400, 1]]", f"[[{10**30}, 1]]", "[[-1, 0]]"]
)
def test_a_damaged_record_of_processes_is_ignored(tmp_path, text):
    file = tmp_path / "processes.json"
    file.write_text(text)
    end_left(file)
