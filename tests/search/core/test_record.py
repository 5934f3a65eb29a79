"""A record of a sweep: ledgers of earlier versions, and values derived from the events."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from search.core.controller import Controller
from search.core.record import SweepRecord
from search.storage import ledger as ledgers
from search.storage.events import EpochReported, TestOpened
from search.storage.folder import SweepFolder
from search.storage.ledger import Ledger
from search.storage.settings import Settings
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

    monkeypatch.setattr(ledgers, "read_lines", never)
    old.append(TestOpened(by="quick-1-confirm"))


def test_a_sweep_without_a_ledger_is_named(tmp_path):
    folder = SweepFolder(tmp_path / "lost")
    folder.path.mkdir()
    with pytest.raises(UserError, match="its ledger.*is missing"):
        SweepRecord.open(folder)
