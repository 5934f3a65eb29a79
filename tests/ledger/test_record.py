"""A record of a sweep: values derived from the events."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from ledger import file as ledgers
from ledger.events import SweepStarted, TestOpened, encode
from ledger.file import Ledger, first_line
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from tests.made_events import make_event
from training.errors import UserError

OLD = Path(__file__).parents[1] / "formats" / "0.1.0" / "ledger.jsonl"


@pytest.fixture
def old(tmp_path):
    """A sweep whose first driver was killed, and which a second one completed."""
    folder = SweepFolder(tmp_path / "quick-1")
    folder.path.mkdir()
    shutil.copy(OLD, folder.ledger)
    return SweepRecord.open(folder)


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

    monkeypatch.setattr(ledgers, "read_events", never)
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
