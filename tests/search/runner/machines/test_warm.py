"""A Ray that stays up between sweeps: who may use it, and that it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest
from filelock import FileLock

from search.runner.machines import keeper, warm
from search.runner.machines.warm import Surroundings, Warm, claim_warm, find_warm, keeper_lock, use_lock, write_state
from search.runner.worker import project_root
from search.storage.ledger import read_events
from tests.real_sweeps import FAST, call, check_no_processes, make_user_folder, reports, start, wait_for
from training.errors import UserError


@pytest.fixture
def ready(tmp_path, monkeypatch):
    """A state as a keeper writes it; the test itself has the keeper's lock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(warm, "_held", [])
    monkeypatch.setattr(warm, "_OTHER", {*warm._OTHER, "PYTEST_CURRENT_TEST"})
    warm.state_folder().mkdir(parents=True)
    lock = keeper_lock()
    lock.acquire()
    found = Warm(pid=1, address="here:1", python="fork", settings={}, surroundings=Surroundings.here())
    write_state(found)
    yield found
    lock.release(force=True)
    for each in warm._held:
        each.release(force=True)


def test_one_sweep_at_a_time_uses_the_ray_that_is_up(ready):
    other = use_lock()
    other.acquire()
    assert claim_warm() == (None, "another sweep uses it")
    other.release()
    assert claim_warm() == (ready, "")
    assert warm.is_held(use_lock())  # until this process ends
    assert claim_warm() == (None, "")  # a second sweep of this process has it already


def test_nothing_is_claimed_where_no_ray_is_up(ready, monkeypatch, tmp_path):
    warm.remove_state()
    assert claim_warm() == (None, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert claim_warm() == (None, "")


def test_the_ray_of_a_killed_keeper_is_not_up(ready, monkeypatch):
    monkeypatch.setattr(warm, "keeper_lock", lambda: FileLock(warm.state_folder() / "of-nobody.lock"))
    assert find_warm() is None
    assert claim_warm() == (None, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch, folder: patch.chdir(folder), "it was started in"),
        (lambda patch, folder: patch.setenv("CUDA_VISIBLE_DEVICES", "7"), "the environment's variables are not those"),
        (lambda patch, folder: patch.setattr("sys.executable", "other/python"), "the code or its libraries have"),
        (lambda patch, folder: patch.setattr(warm, "project_root", lambda: str(folder)), "the code or its libraries"),
    ],
)
def test_a_sweep_whose_workers_would_differ_does_not_use_it(ready, change, reason, monkeypatch, tmp_path):
    change(monkeypatch, tmp_path)
    claimed, given = claim_warm()
    assert claimed is None
    assert given.startswith(reason)
    assert not warm.is_held(use_lock())


def test_variables_of_the_terminal_make_no_difference(ready, monkeypatch):
    for name in ("TERM", "COLUMNS", "SSH_TTY", "TMUX_PANE", "SHLVL", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "other")
    assert claim_warm() == (ready, "")


def test_a_changed_source_file_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(warm, "project_root", lambda: str(tmp_path))
    file = tmp_path / "training" / "model.py"
    file.parent.mkdir()
    file.write_text("")
    before = Surroundings.here()
    assert before.name_difference(Surroundings.here()) == ""
    os.utime(file, (1, 1))
    assert "code" in before.name_difference(Surroundings.here())


def test_the_state_of_another_version_can_be_read(ready):
    state = warm.state_folder() / "ready.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"new": 1}))
    assert find_warm() == ready


def test_down_says_so_if_no_ray_is_up_or_a_sweep_uses_it(ready):
    lock = use_lock()
    lock.acquire()
    with pytest.raises(UserError, match="A sweep uses the Ray that is up"):
        keeper.take_down()
    lock.release()
    warm.remove_state()
    assert keeper.take_down() == "No Ray is up."


def test_up_refuses_a_second_one_for_other_surroundings(ready, monkeypatch, tmp_path):
    assert keeper.bring_up(30) == "Ray is up already, for sweeps in this folder."
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="A Ray is up already, and it was started in"):
        keeper.bring_up(30)


def test_a_cache_that_cannot_be_used_costs_no_sweep_and_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert claim_warm() == (None, "")
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\)\. Set XDG_CACHE_HOME"):
        keeper.bring_up(30)


def test_a_second_keeper_leaves_the_place_to_the_first(ready):
    command = [sys.executable, "-m", "search.runner.machines.keeper", "30"]
    done = subprocess.run(command, cwd=project_root(), capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (1, "another sweep up is starting one\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sweeps_share_a_ray_that_outlives_even_a_killed_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAST_EPOCH_SECONDS", "1")
    (folder := tmp_path / "own").mkdir()
    make_user_folder(folder)
    assert call(folder, "up", command=FAST).startswith(f"Ray is up: sweeps that start in {folder} use it.")
    try:
        assert "joining the Ray of sweep up" in call(folder, "run", "tiny.yaml", "--name", "one", command=FAST)
        options = ("--name", "two", "--trials", "1000", "search.scheduler={name: none}")
        driver = start(folder, "run", "tiny.yaml", *options, command=FAST)
        ledger = folder / "sweeps" / "two" / "ledger.jsonl"
        wait_for(ledger, reports, driver)
        call(folder, "down", check=2, command=FAST)
        driver.kill()
        driver.communicate()
        resumed = start(folder, "resume", "two", command=FAST)
        seen = len(reports(read_events(ledger)))
        wait_for(ledger, lambda events: len(reports(events)) > seen + 3, resumed)
        resumed.send_signal(signal.SIGINT)
        assert "joining the Ray of sweep up" in resumed.communicate(timeout=300)[0]
    finally:
        assert call(folder, "down", command=FAST) == "Ray has ended.\n"
    check_no_processes(folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_ray_that_no_sweep_uses_ends_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    call(tmp_path, "up", "--minutes", "0.1", command=FAST)
    check_no_processes(tmp_path)
    assert find_warm() is None
