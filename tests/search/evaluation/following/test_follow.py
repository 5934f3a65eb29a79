"""The page of a running sweep: what it says, when it is written, and that its process ends with the driver."""

import base64
import gzip
import json
import re
import subprocess
import sys
import time
from datetime import datetime

import pytest

from analysis.report.live import PLACE, put_live
from ledger.events import DriverStarted, TrialEnded, TrialLost
from ledger.record import SweepRecord
from search.evaluation import follow
from search.evaluation.follow import Follower, describe_live, follow_to_end, read_folder
from tests.commands import call
from tests.search.evaluation.following.conftest import DRIVER, append


@pytest.fixture
def page(tmp_path):
    return tmp_path / "reports" / "mine.html"


def data_of(page):
    packed = re.search(r'id="sweep-data">([^<]+)</script>', page.read_text())[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def read_live(folder):
    with folder.locked():
        return describe_live(SweepRecord.open(folder))


def test_the_page_of_a_running_sweep_has_what_the_report_has_and_says_what_runs(make_sweep, events, page):
    sixth = next(place for place, event in enumerate(events) if place > 60 and getattr(event, "epoch", 0) == 6)
    folder = make_sweep(events[: sixth + 1])
    with folder.locked():
        Follower(read_folder(folder), page).write()
    text = page.read_text()
    assert "location.reload()" in text
    assert PLACE not in text
    assert "epoch 6 of 9" in text
    assert '<h2 id="effects">' in text
    assert "sweep stop mine" in text
    assert data_of(page)["trials"]["trial"] == list(range(len(SweepRecord.open(folder).trials)))


def test_a_page_without_a_completed_trial_shows_the_trials(make_sweep, events, page):
    folder = make_sweep(events[:3])
    with folder.locked():
        Follower(read_folder(folder), page).write()
    assert "none of its 1 trials has completed" in page.read_text()
    assert data_of(page)["trials"]["trial"] == [0]


def test_before_the_first_trial_there_is_no_page(make_sweep, page, tmp_path):
    Follower(lambda: None, page).write()
    Follower(read_folder(make_sweep()), page).write()
    assert not page.exists()


def test_what_follows_from_the_ledger_is_made_only_after_the_ledger_has_grown(make_sweep, events, page, monkeypatch):
    folder = make_sweep(events[:40])
    follower, made = Follower(read_folder(folder), page), []
    find = follow.find_if_any
    monkeypatch.setattr(follow, "find_if_any", lambda *given: made.append(1) or find(*given))
    written = []
    for _ in range(2):
        follower.write()
        written.append(re.search(r'data-written="([\d.]+)"', page.read_text())[1])
    assert len(made) == 1
    assert written[0] != written[1]
    later = next(place for place, event in enumerate(events) if place > 40 and event.event == "end") + 1
    append(folder, events[40:later])
    follower.write()
    assert len(made) == 2


def test_a_reader_of_a_folder_gets_new_events_and_begins_again_after_a_repair(make_sweep, events, monkeypatch):
    folder, decoded, decode = make_sweep(events[:40]), [], follow.try_decode
    monkeypatch.setattr(follow, "try_decode", lambda line: decoded.append(line) or decode(line))
    read = read_folder(folder)
    whole = len(read().events)
    assert read() is read()
    append(folder, events[40:42])
    assert len(read().events) == whole + 2
    assert len(decoded) == whole + 2  # each line once
    kept = folder.ledger.read_bytes().splitlines(keepends=True)[:12]
    folder.ledger.unlink()
    folder.ledger.write_bytes(b"".join(kept))
    assert len(read().events) == 11


def test_the_workers_show_what_each_of_them_trains(make_sweep, events):
    starts = [event for event in events if event.event == "start"][:3]
    driver = DriverStarted(threads=2, slots=3, host="far-away", gpus=0.5)
    live = read_live(make_sweep([driver, *starts[:2], TrialLost(trial=0, reason="its node died"), starts[2]]))
    assert [worker.trial for worker in live.workers] == ["0002", "0001", None]
    assert live.machine == "2 CPU threads and 0.5 GPU for each trial, driver on far-away"


def test_the_time_left_is_known_once_a_trial_has_ended(make_sweep, events):
    folder = make_sweep([DRIVER.model_copy(update={"time": time.time() - 60})])
    assert read_live(folder).time_left == "the time left is not known yet"
    append(folder, events[1:60])
    assert read_live(folder).time_left.startswith("about ")


def test_the_reason_of_an_end_has_no_password(make_sweep, events, page):
    end = TrialEnded(trial=0, state="failed", reason="no answer from http://ada:secret@host")
    folder = make_sweep([*events[:4], end])
    Follower(read_folder(folder), page).write()
    assert data_of(page)["trials"]["reason"] == ["no answer from http://ada:***@host"]


def test_the_command_follows_a_sweep_until_its_driver_ends_and_then_writes_the_report(
    make_sweep, events, page, monkeypatch, capsys
):
    folder, seen = make_sweep(events[:80]), []
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    lock = folder.locked()
    lock.__enter__()
    write = Follower.write

    def write_and_end(follower):
        write(follower)
        seen.append("location.reload()" in page.read_text())
        append(folder, events[80:])
        lock.__exit__(None, None, None)

    monkeypatch.setattr(Follower, "write", write_and_end)
    call("report", "mine", "--follow", "--storage", str(folder.path.parent), "--out", str(page))
    assert seen == [True]
    assert "written anew until the sweep has ended" in capsys.readouterr().out
    text = page.read_text()
    assert "location.reload()" not in text
    assert 'id="costs"' in text
    assert "Continue it" not in text


def test_a_sweep_whose_driver_died_gets_a_last_page_that_says_so(make_sweep, events, page):
    folder = make_sweep(events[:80])
    call("report", "mine", "--follow", "--storage", str(folder.path.parent), "--out", str(page))
    assert "no driver runs it. Continue it: sweep resume mine" in page.read_text()
    assert "location.reload()" not in page.read_text()


def test_a_sweep_that_ends_without_a_completed_trial_gets_a_page_that_is_not_loaded_again(make_sweep, events, page):
    folder = make_sweep(events[:4])
    with folder.locked():
        Follower(read_folder(folder), page).write()
    with pytest.raises(follow.UserError, match="has completed"):
        call("report", "mine", "--follow", "--storage", str(folder.path.parent), "--out", str(page))
    assert "location.reload()" not in page.read_text()
    assert "none of its 1 trials has completed" in page.read_text()


def test_a_sweep_on_another_machine_is_read_again_until_it_ends(make_sweep, events, page, monkeypatch):
    from dataclasses import replace

    folder = make_sweep(events)
    copies = [SweepRecord(replace(folder, known_running=running), events_of(folder)) for running in (True, True, False)]
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    records = iter(copies[1:])
    follow_to_end(copies[0], lambda: next(records), page, print)
    assert next(records, None) is None
    assert page.is_file()


def events_of(folder):
    return SweepRecord.open(folder).events


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_process_beside_a_driver_writes_the_last_page_and_ends_with_it(make_sweep, events, page, is_killed):
    folder = make_sweep(events)
    driver = (
        "import sys, time; from pathlib import Path\n"
        "from ledger.folder import SweepFolder; from search.evaluation.follow import beside\n"
        "folder, page = SweepFolder(Path(sys.argv[1])), Path(sys.argv[2])\n"
        "with folder.locked(), beside(folder, page, [], print):\n"
        "    while not page.exists(): time.sleep(0.1)\n"
        "    print('READY', flush=True); sys.stdin.read()\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", driver, str(folder.path), str(page)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while "READY" not in started.stdout.readline():
        assert started.poll() is None
    assert "location.reload()" in page.read_text()
    if is_killed:
        started.kill()
    started.communicate("end\n" if not is_killed else None, timeout=120)
    deadline = time.monotonic() + 120
    while "location.reload()" in page.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert 'id="costs"' in page.read_text()


def test_a_page_says_when_it_was_written(make_sweep, events):
    text = put_live(PLACE, read_live(make_sweep(events[:9])), 20.0)
    written = float(re.search(r'data-written="([\d.]+)"', text)[1])
    assert abs(datetime.now().timestamp() - written) < 20
