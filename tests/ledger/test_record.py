"""A record of a sweep: ledgers of earlier versions, and values derived from the events."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from ledger import file as ledgers
from ledger.events import EpochReported, SweepStarted, TestOpened, encode
from ledger.file import Ledger, first_line
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.core.controller import Controller
from tests.made_events import make_event
from training.errors import UserError

OLD = Path(__file__).parent / "ledgers" / "before_events_had_types.jsonl"


@pytest.fixture
def old(tmp_path):
    """A sweep whose first driver was killed, written before events had types."""
    folder = SweepFolder(tmp_path / "quick-1")
    folder.path.mkdir()
    shutil.copy(OLD, folder.ledger)
    return SweepRecord.open(folder)


def test_a_ledger_from_before_events_had_types_is_read_completely(old):
    states = {trial.number: trial.state for trial in old.trials}
    assert states == {**dict.fromkeys((0, 1, 2, 3, 5, 6, 7), "completed"), 4: "diverged"}
    assert old.trials.best().number == 7
    assert old.trials.by_number[5].crashes == 1
    assert old.state == "completed"
    assert old.is_done
    assert old.is_delivered
    assert old.run_ids[3] == "run3"
    assert old.test_openings == 1
    assert old.settings == Settings("sqlite:///mlflow.db", "technique-search")
    assert old.header.dataset["digest"] == "abc"
    assert old.trials.by_number[0].recipe == old.space.baselines()[0]


def test_a_controller_continues_with_a_ledger_from_before_events_had_types(old):
    controller = Controller(old.space, Ledger(old.folder.ledger))
    assert controller.is_done
    assert [
        event.epoch for event in controller.ledger.events if isinstance(event, EpochReported) and event.trial == 0
    ] == [*range(1, 10)]


def test_a_trial_that_an_earlier_version_paused_at_a_rung_is_stopped(old):
    lines = old.folder.ledger.read_text().splitlines()
    start, report = (next(line for line in lines if f'"{kind}","trial":3' in line) for kind in ("start", "report"))
    paused = '{"event":"end","trial":8,"state":"paused","reason":""}'
    new = [start.replace('"trial":3', '"trial":8'), report.replace('"trial":3', '"trial":8'), paused]
    old.folder.ledger.write_text("\n".join([*lines, *new]) + "\n")
    record = SweepRecord.open(old.folder)
    assert record.trials.by_number[8].state == "stopped"
    controller = Controller(record.space, Ledger(old.folder.ledger))
    assert controller.is_done
    controller.record(ledgers.decode(b'{"event":"resume","trial":8}'))
    assert controller.trials.by_number[8].state == "running"


def test_a_score_that_is_not_a_number_is_no_event():
    values = {"event": "report", "trial": 0, "epoch": 1, "standard_error": 0.1, "best_epoch": 1}
    assert make_event({**values, "score": 0.5})
    with pytest.raises(ValueError, match="score"):
        make_event({**values, "score": math.nan})


def test_a_sweep_that_was_extended_after_its_end_is_not_done(old):
    ledger = Ledger(old.folder.ledger, old.events)
    ledger.append(ledgers.decode(b'{"event":"extend","trials":2}'))
    record = SweepRecord(old.folder, ledger.events)
    assert record.budget == 10
    assert not record.is_done


def test_an_event_that_a_record_appends_is_in_the_file_and_in_the_record(old):
    old.append(TestOpened(by="quick-1-confirm"))
    assert old.test_openings == 2
    assert SweepRecord.open(old.folder).test_openings == 2


def test_appending_does_not_read_the_ledger_again(old, monkeypatch):
    def never(path):
        raise AssertionError("the ledger was read again")

    monkeypatch.setattr(ledgers, "_read_lines", never)
    old.append(TestOpened(by="quick-1-confirm"))


def test_a_sweep_without_a_ledger_is_named(tmp_path):
    folder = SweepFolder(tmp_path / "lost")
    folder.path.mkdir()
    with pytest.raises(UserError, match="its ledger.*is missing"):
        SweepRecord.open(folder)


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_damaged_copy_from_a_store_names_no_folder_that_is_gone(tmp_path, keep):
    lines = [first_line(1.0), encode(SweepStarted(id="x", settings=Settings())), b"garbage\n", b""]
    folder = SweepFolder(tmp_path / "mine", known_running=False)
    folder.path.mkdir()
    folder.ledger.write_bytes(b"".join(lines[:keep]))
    with pytest.raises(UserError, match="^mine: the copy of its ledger in the MLflow store is damaged") as caught:
        _ = SweepRecord.open(folder).header
    assert "sweep rm" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(UserError, match="sweep rm mine"):
        _ = SweepRecord.open(SweepFolder(folder.path)).header
