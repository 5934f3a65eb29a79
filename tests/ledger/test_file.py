import json
import shutil

import pytest
from pydantic import ValidationError

from ledger.events import EpochReported, TrialLost, TrialResumed, decode, encode
from ledger.file import Ledger, read_events
from tests.made_events import make_event
from training.errors import UserError


def test_events_survive_in_order(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for trial in range(5):
        ledger.append(TrialResumed(trial=trial))
    assert json.loads((tmp_path / "ledger.jsonl").read_text().splitlines()[0])["format"] == 1
    events = list(read_events(tmp_path / "ledger.jsonl"))
    assert [event.trial for event in events] == [0, 1, 2, 3, 4]
    assert events == Ledger(tmp_path / "ledger.jsonl").events


@pytest.mark.parametrize("removed", ["ledger.jsonl", "."])
def test_a_ledger_that_is_removed_while_it_is_open_is_written_again_with_all_events(tmp_path, removed):
    path = tmp_path / "mine" / "ledger.jsonl"
    path.parent.mkdir()
    ledger = Ledger(path)
    for trial in range(3):
        ledger.append(TrialResumed(trial=trial))
    assert not ledger.was_removed
    path.unlink() if removed == "ledger.jsonl" else shutil.rmtree(path.parent)
    for trial in range(3, 5):
        ledger.append(TrialResumed(trial=trial))
    assert ledger.was_removed
    assert [event.trial for event in read_events(path)] == [0, 1, 2, 3, 4]
    assert [file.name for file in path.parent.iterdir()] == ["ledger.jsonl"]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_an_incomplete_last_line_is_removed_and_the_next_event_starts_a_new_line(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(TrialResumed(trial=0))
    ledger.append(TrialLost(trial=1, reason="x" * 40))
    ledger.close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Ledger(path)
    assert [event.trial for event in again.events] == [0]
    again.append(TrialResumed(trial=2))
    assert [json.loads(line).get("trial") for line in path.read_text().splitlines()] == [None, 0, 2]


def test_events_of_a_kind_that_only_a_later_version_knows_are_left_out_with_one_warning(tmp_path, caplog):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(TrialResumed(trial=0))
    later = b'{"time":1.0,"event":"fold_scored","trial":0}\n{"event":"thawed"}\n{"event":"thawed"}\n'
    path.write_bytes(path.read_bytes() + later + encode(TrialResumed(trial=1)))
    again = Ledger(path)
    again.append(TrialResumed(trial=2))
    assert [event.trial for event in read_events(path)] == [0, 1, 2]
    assert later in path.read_bytes()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 3 lines of a later version were left out (fold_scored, thawed)."
    ] * 2


BROKEN = {
    b"{": "line 4",
    b"[]": "line 4",
    b"[" * 99999: "line 4",
    b"\0" * 40: "line 4",
    b'{"event":"a b"}': "line 4",
    b'{"event":7}': "line 4",
    b'{"time":1.0,"event":"end","trial":0}': "line 4 (end of trial 0000)",
    b'{"time":1.0,"trial":12,"event":"report","epo': "line 4 (report of trial 0012)",
}


@pytest.mark.parametrize("line", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_line_is_left_out_with_one_warning_that_names_it(tmp_path, line, caplog):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(TrialResumed(trial=0))
    ledger.append(TrialResumed(trial=1))
    path.write_bytes(path.read_bytes() + line + b"\n" + encode(TrialResumed(trial=2)) + b'{"event":"end","tri')
    before = path.read_bytes()
    again = Ledger(path)
    assert [event.trial for event in again.events] == [0, 1, 2]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: damaged, and read without {BROKEN[line]}, line 6 (end), which is incomplete."
    ]
    again.append(TrialResumed(trial=3))
    assert path.read_bytes() == before[: before.rindex(b"\n") + 1] + encode(again.events[-1])
    assert [event.trial for event in read_events(path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_ledger_without_what_describes_its_sweep_is_refused_with_the_line(tmp_path, number):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for trial in range(4):
        ledger.append(TrialResumed(trial=trial))
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = b"garbage"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UserError, match=rf"ledger\.jsonl:{number}: .*damaged\. Remove the sweep: sweep rm"):
        Ledger(path)


@pytest.mark.parametrize("content", [b"", b'{"time":1.0,"format":1}'])
def test_a_ledger_without_a_complete_line_is_refused_and_stays_unchanged(tmp_path, content):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match="the ledger is empty"):
        Ledger(path)
    assert path.read_bytes() == content


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"format": 9}\n')
    with pytest.raises(UserError, match="format 9"):
        Ledger(path)


def test_nan_and_infinity_are_never_written():
    with pytest.raises(ValidationError, match="finite"):
        EpochReported(trial=0, epoch=1, score=float("nan"), standard_error=0.1, best_epoch=1)


def test_a_recipe_that_a_later_version_would_refuse_can_still_be_read():
    recipe = {"epochs": 1, "schedule": {"name": "cosine", "warmup_epochs": 5}}
    event = make_event({"event": "start", "trial": 0, "recipe": recipe, "params": None, "origin": "sampler"})
    assert event.recipe.schedule.warmup_epochs == 5
    assert decode(encode(event)) == event
