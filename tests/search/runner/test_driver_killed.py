"""Real sweeps that are killed for real. They need no more than a trainer that keeps the contract."""

import json
import subprocess

import psutil
import pytest

from ledger.file import read_events
from ledger.trials import Trials
from tests.real_sweeps import (
    FAST,
    call,
    check_no_processes,
    check_truth,
    kill_a_worker,
    reports,
    start,
    wait_for,
)

pytestmark = pytest.mark.timeout(1800)  # one test starts four drivers, perhaps on a busy machine


@pytest.mark.slow
def test_after_a_killed_worker_ledger_and_mlflow_agree_and_no_process_is_left(folder):
    """The one real sweep of `make test`; the others here train more, or are killed more."""
    driver = start(folder, "run", "tiny.yaml", "--name", "lost", command=FAST)
    try:
        wait_for(folder / "sweeps" / "lost" / "ledger.jsonl", lambda events: len(reports(events)) >= 1, driver)
        recorded = [pid for pid, _ in json.loads((folder / "sweeps" / "lost" / "processes.json").read_text())]
        assert sum(psutil.Process(pid).name().endswith("Agent") for pid in recorded) == 2
        kill_a_worker(driver)
        assert driver.wait(timeout=900) == 0, driver.stdout.read()
    finally:
        driver.kill()
    check_truth(folder, "lost", 6)
    events = list(read_events(folder / "sweeps" / "lost" / "ledger.jsonl"))
    assert [event.event for event in events].count("lost") == 1  # it went on by our count, not by Ray's
    check_no_processes(folder)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["raylet", "gcs_server"])
def test_a_sweep_goes_on_by_itself_after_a_server_of_its_ray_is_killed_once_and_ends_after_the_second_time(
    folder, server
):
    ledger = folder / "sweeps" / server / "ledger.jsonl"
    driver = start(folder, "run", "tiny.yaml", "--name", server, "--trials", "40", command=FAST)
    try:
        for number in (1, 2):

            def trains(events, number=number):
                drivers = sum(event.event == "driver" for event in events)
                return drivers == number and events[-1].event == "report"

            wait_for(ledger, trains, driver)
            [found] = [child for child in psutil.Process(driver.pid).children() if child.name() == server]
            found.kill()
        printed = driver.communicate(timeout=300)[0]
    finally:
        driver.kill()
    assert "Ray ended. It starts again" in printed
    assert f"Ray ended twice. Look for the reason, then continue with: sweep resume {server}" in printed
    assert driver.returncode == 2
    call(folder, "resume", server, command=FAST)
    check_truth(folder, server, 40)
    check_no_processes(folder)


MOMENTS = {
    "during start-up": lambda events: any(event.event == "driver" for event in events),
    "in the middle of a trial": lambda events: len(reports(events)) >= 2,
    "just after a trial's end": lambda events: any(
        getattr(event, "state", None) in ("completed", "stopped") for event in events
    ),
}


@pytest.mark.slow
def test_a_sweep_continues_whenever_its_driver_is_killed(folder):
    ledger = folder / "sweeps" / "killed" / "ledger.jsonl"
    kept: list = []
    for moment, enough in MOMENTS.items():
        arguments = ["resume", "killed"] if kept or ledger.exists() else ["run", "tiny.yaml", "--name", "killed"]
        driver = start(folder, *arguments, command=FAST)
        seen = len(kept)
        wait_for(ledger, lambda events, enough=enough, seen=seen: len(events) > seen and enough(events), driver)
        driver.kill()
        driver.wait()
        if moment == "in the middle of a trial":
            forget_last_report(ledger)
        kept = list(read_events(ledger))
    call(folder, "resume", "killed", command=FAST)
    events = list(read_events(ledger))
    assert events[: len(kept)] == kept
    check_truth(folder, "killed", 6)
    check_no_processes(folder)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting takes a right that this user does not have")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_a_sweep_in_one_sentence_and_earlier_results_are_kept(folder, small_disk):
    ledger, filler = small_disk / "full" / "ledger.jsonl", small_disk / "filler"
    driver = start(folder, "run", "tiny.yaml", "--name", "full", "--storage", str(small_disk), command=FAST)
    wait_for(ledger, lambda events: len(reports(events)) >= 2, driver)
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (4 << 20))
    said, _ = driver.communicate(timeout=900)
    assert driver.returncode == 2, said
    assert "No space left on device" in said.splitlines()[-1]
    assert "sweep resume full" in said.splitlines()[-1]
    assert "Traceback" not in said
    kept = list(read_events(ledger))
    filler.unlink()
    call(folder, "resume", "full", "--storage", str(small_disk), command=FAST)
    assert list(read_events(ledger))[: len(kept)] == kept
    trials = Trials("val_accuracy", read_events(ledger))
    assert [trial.state in ("completed", "stopped") for trial in trials] == [True] * 6


def forget_last_report(ledger):
    """As if the driver had been killed between a worker's checkpoint and its report: the checkpoint is ahead."""
    lines = ledger.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if b'"event":"report"' in line)
    ledger.write_bytes(b"".join(lines[:last]))
