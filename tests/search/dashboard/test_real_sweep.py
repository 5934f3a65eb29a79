"""A real sweep with its dashboard: it can be paused until nothing runs, continued and ended, and the page ends with it."""

import json
import re
import urllib.request

import pytest

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from tests.real_sweeps import FAST, make_user_folder, start, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def post(address, **values):
    origin = {"Origin": address.rstrip("/"), "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{address}requests", json.dumps(values).encode(), origin)
    with urllib.request.urlopen(asked, timeout=120) as answer:
        return json.loads(answer.read())["sentence"]


def count(events, kind):
    return [event.event for event in events].count(kind)


def test_a_sweep_is_paused_until_nothing_runs_then_continued_extended_and_ended(tmp_path):
    folder = make_user_folder(tmp_path)
    driver = start(folder, "run", "tiny.yaml", "--name", "mine", "--dashboard", command=FAST)
    try:
        address = next(found[1] for line in driver.stdout if (found := re.search(r"Dashboard: (http\S+)", line)))
        ledger = folder / "sweeps" / "mine" / "ledger.jsonl"
        wait_for(ledger, lambda events: count(events, "start"), driver)
        post(address, action="pause")
        idle = wait_for(
            ledger, lambda events: count(events, "pause") and count(events, "start") == count(events, "end"), driver
        )
        post(address, action="continue")
        post(address, action="extend", trials=2)
        wait_for(ledger, lambda events: count(events, "start") > count(idle, "start"), driver)
        post(address, action="pause")
        wait_for(
            ledger,
            lambda events: count(events, "pause") == 3 and count(events, "start") == count(events, "end"),
            driver,
        )
        post(address, action="end")  # while no trial runs
        output = driver.communicate(timeout=300)[0]
    finally:
        driver.kill()
    assert driver.returncode == 130, output
    assert "Open it again: sweep dashboard mine" in output
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{address}state", timeout=20)
    record = SweepRecord.open(SweepFolder(ledger.parent))
    assert (record.state, record.budget) == ("interrupted", 8)
