"""The dashboard follows a ledger: each answer has what is new, and together they are what the report shows."""

import json
import shutil
import subprocess
import sys
import time

import psutil
import pytest

from analysis.report.sweep_data import collect_sweep
from ledger import file as ledger_file
from ledger.events import DriverStarted, SweepPaused, TrialEnded, TrialLost
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.dashboard import live_sweep
from search.dashboard.live_sweep import LiveSweep
from tests.search.dashboard.conftest import DRIVER, append


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Look at the ledger and at the lock each time."""
    monkeypatch.setattr(live_sweep, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(live_sweep, "LOCK_SECONDS", 0.0)


class Page:
    """What a browser keeps of the answers."""

    def __init__(self, live):
        self.live, self.version, self.session, self.rows, self.share = live, 0, "", {}, 1.0

    def ask(self):
        answer = self.live.describe(self.version, self.session, self.share < 1)
        self.share = answer.get("share", 1.0)
        if answer["session"] != self.session:
            self.rows = {}
        self.version, self.session = answer["version"], answer["session"]
        for row in answer.get("rows", []):
            self.rows.setdefault(row["trial"], {}).update(row)
        return answer


def test_a_page_gets_only_the_trials_that_changed(make_sweep, events):
    folder = make_sweep(events[:40])
    page = Page(LiveSweep(folder))
    first = page.ask()
    assert {row["trial"] for row in first["rows"]} == {event.trial for event in events[1:40]}
    assert "rows" not in page.ask()
    append(folder, events[40:42])
    assert {row["trial"] for row in page.ask()["rows"]} == {event.trial for event in events[40:42]}


def test_the_parts_of_a_page_add_up_to_the_data_of_the_report(make_sweep, events, space):
    folder = make_sweep()
    page = Page(LiveSweep(folder))
    facts = page.ask()["sweep"]
    for cut in range(0, len(events), 25):
        append(folder, events[cut : cut + 25])
        last = page.ask()
    report = collect_sweep(make_tables(SweepRecord.open(folder)))
    rows = [page.rows[number] for number in report.trials["trial"]]
    for name, column in report.trials.items():
        assert [row[name] for row in rows] == column, name
    assert [row["curve"] for row in rows] == report.curves
    assert [row["metrics"] for row in rows] == report.epochs
    assert [tuple(rung) for rung in last["rungs"]] == report.rungs
    assert last["best"] == report.trials["trial"][report.best]
    assert last["baseline"] == report.trials["trial"][report.baseline]
    for place, axis in enumerate(report.axes):
        assert {key: facts["axes"][place][key] for key in ("name", "scale")} == {"name": axis.name, "scale": axis.scale}
        shown = [axis.options[value] for value in axis.values] if axis.options else axis.values
        assert [row["places"][place] for row in rows] == shown
    for number, trial in enumerate(rows):
        recipe = {name: value for name, value in (facts["base"] | trial["recipe"]).items() if value is not None}
        expected = report.fixed | {name: values[number] for name, values in report.varying.items()}
        assert recipe == {name: value for name, value in expected.items() if value is not None}


def test_an_answer_without_news_is_small(make_sweep, events):
    page = Page(LiveSweep(make_sweep(events)))
    assert len(json.dumps(page.ask())) > 10_000
    assert len(json.dumps(page.ask())) < 3000


def test_a_line_that_the_driver_is_still_writing_waits_for_its_end(make_sweep, events):
    folder = make_sweep(events[:5])
    page = Page(LiveSweep(folder))
    page.ask()
    whole = folder.ledger.read_bytes()
    append(folder, events[5:6])
    line = folder.ledger.read_bytes()[len(whole) :]
    folder.ledger.write_bytes(whole + line[:20])
    assert "rows" not in page.ask()
    with folder.ledger.open("ab") as file:
        file.write(line[20:])
    assert [row["trial"] for row in page.ask()["rows"]] == [events[5].trial]


def test_a_large_ledger_is_read_in_parts_and_the_page_fills(make_sweep, events, monkeypatch):
    monkeypatch.setattr(ledger_file, "CHUNK", 3000)
    page = Page(LiveSweep(make_sweep(events)))
    shares = [page.ask()["share"]]
    while shares[-1] < 1:
        shares.append(page.ask()["share"])
    assert len(shares) > 10
    assert len(page.rows) == 30


def test_a_page_gets_many_trials_in_parts_and_each_with_its_recipe(make_sweep, events, monkeypatch):
    monkeypatch.setattr(ledger_file, "CHUNK", 3000)
    live = LiveSweep(make_sweep(events))
    whole = Page(live)
    while whole.ask()["share"] < 1:
        pass
    monkeypatch.setattr(live_sweep, "MOST", 5)
    page, sizes = Page(live), []
    while not sizes or page.share < 1:
        sizes.append(len(page.ask().get("rows", [])))
        if len(sizes) == 2:  # a trial that started long ago changes before the page has got it
            live.state.changed[0] = live.state.version = live.state.version + 1
    assert len(sizes) > 3
    assert max(sizes) < 15
    assert page.rows == whole.rows


def test_a_ledger_that_was_replaced_is_read_again_by_the_same_page(make_sweep, events):
    folder = make_sweep(events[:40])
    page = Page(LiveSweep(folder))
    page.ask()
    kept = folder.ledger.read_bytes().splitlines(keepends=True)[:12]
    folder.ledger.unlink()
    folder.ledger.write_bytes(b"".join(kept))
    assert "sweep" in page.ask()
    assert set(page.rows) == {event.trial for event in events[1:10]}


def test_a_sweep_that_has_not_begun_has_a_page_that_waits(make_sweep, events):
    folder = make_sweep(events)
    hidden = folder.ledger.rename(folder.ledger.with_suffix(".later"))
    page = Page(LiveSweep(folder))
    assert "head" not in page.ask()
    hidden.rename(folder.ledger)
    assert page.ask()["head"]["budget"] == 30


def test_trials_without_a_driver_are_shown_as_interrupted(make_sweep, events):
    folder = make_sweep(events[:4])
    page = Page(LiveSweep(folder))
    with folder.locked():
        assert page.ask()["head"]["state"] == "running"
        assert page.rows[0]["state"] == "running"
    assert page.ask()["head"]["state"] == "interrupted"
    assert page.rows[0]["state"] == "interrupted"


def test_the_workers_show_what_each_of_them_trains(make_sweep, events, space):
    starts = [event for event in events if event.event == "start"][:3]
    driver = DriverStarted(threads=2, slots=3, host="far-away")
    folder = make_sweep([driver, *starts[:2], TrialLost(trial=0, reason="its node died"), starts[2]])
    with folder.locked():
        head = LiveSweep(folder).describe(0, "")["head"]
    assert head["workers"] == [2, 1, None]
    assert head["machine"] == "2 CPU threads for each trial · driver on far-away"


def test_the_time_left_names_its_basis(make_sweep, events):
    folder = make_sweep([DRIVER.model_copy(update={"time": time.time() - 60})])
    with folder.locked():
        assert LiveSweep(folder).describe(0, "")["head"]["time_left"]["basis"] == "no trial has ended"
        append(folder, events[1:60])
        left = LiveSweep(folder).describe(0, "")["head"]["time_left"]
    assert left["text"].startswith("about ")
    assert left["basis"].endswith("epochs since the driver started")


def test_a_pause_is_shown_until_a_driver_starts_again(make_sweep, events):
    folder = make_sweep([*events[:4], SweepPaused(request="p", is_paused=True)])
    with folder.locked():
        assert LiveSweep(folder).describe(0, "")["head"]["is_paused"]
        append(folder, [DRIVER])
        assert not LiveSweep(folder).describe(0, "")["head"]["is_paused"]


def test_the_rungs_are_those_of_the_search(make_sweep, events, space):
    from ledger.file import Ledger
    from search.core.controller import Controller

    folder = make_sweep(events)
    expected = Controller(space, Ledger(folder.ledger)).asha.rungs()
    shown = LiveSweep(folder).describe(0, "")["head"]["rungs"]
    assert [(rung["label"], rung["reached"]) for rung in shown] == [(label, count) for label, count, _ in expected]
    assert [rung for rung in shown if rung["reached"] and not rung["passing"].endswith(" %")] == []


def test_the_reason_of_an_end_has_no_password(make_sweep, events):
    end = TrialEnded(trial=0, state="failed", reason="no answer from http://ada:secret@host")
    folder = make_sweep([*events[:4], end])
    assert LiveSweep(folder).describe(0, "")["rows"][0]["reason"] == "no answer from http://ada:***@host"


def test_a_sweep_of_another_machine_is_followed_through_its_store(make_sweep, events, tmp_path, monkeypatch):
    from search.dashboard import live_sweep

    away, states = make_sweep(events[:40]), [True, False]

    def fetch(uri, name, out):
        copy = SweepFolder(out / name, known_running=states.pop(0))
        shutil.copytree(away.path, copy.path)
        return copy

    monkeypatch.setattr(live_sweep, "fetch_ledger", fetch)
    page = Page(live_sweep.follow_store("http://host:5000", "mine"))
    assert page.ask()["head"]["state"] == "running"
    session = page.session
    append(away, events[40:])
    live_sweep.fetch(page.live)
    assert page.ask()["head"]["state"] == "completed"
    assert len(page.rows) == 30
    assert page.session == session


def test_a_computation_of_findings_ends_with_its_server_however_that_ends(make_sweep, tmp_path):
    plugin = tmp_path / "waits.py"
    plugin.write_text("import time\ntime.sleep(600)\n")
    server = (
        "import os, sys, time; from pathlib import Path; import psutil\n"
        "from ledger.folder import SweepFolder; from search.dashboard.findings import LiveFindings\n"
        "LiveFindings(SweepFolder(Path(sys.argv[1])), lambda: 1, [sys.argv[2]]).describe(0)\n"
        "while not (children := psutil.Process().children()): time.sleep(0.01)\n"
        "print(children[0].pid, flush=True); sys.stdin.read()\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", server, str(make_sweep().path), str(plugin)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    computation = psutil.Process(int(started.stdout.readline()))
    started.kill()
    started.wait()
    computation.wait(100)
