import json

import pytest

from search.core.ledger import Ledger, read_events
from training.errors import UserError


def test_events_survive_in_order(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for trial in range(5):
        ledger.append({"event": "start", "trial": trial})
    events = list(read_events(tmp_path / "ledger.jsonl"))
    assert events[0]["format"] == 1
    assert [event["trial"] for event in events[1:]] == [0, 1, 2, 3, 4]
    assert events == Ledger(tmp_path / "ledger.jsonl").events


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_torn_last_line_is_cut_and_the_next_event_starts_its_own(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append({"event": "start", "trial": 0})
    ledger.append({"event": "start", "trial": 1, "recipe": "x" * 40})
    ledger.close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Ledger(path)
    assert [event.get("trial") for event in again.events] == [None, 0]
    again.append({"event": "start", "trial": 2})
    assert [json.loads(line).get("trial") for line in path.read_text().splitlines()] == [None, 0, 2]


def test_a_damaged_line_in_the_middle_is_refused_by_its_number(tmp_path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append({"event": "start", "trial": 0})
    path.write_text(path.read_text().replace('{"time"', '{"ti', 1) + '{"event":"x"}\n')
    with pytest.raises(UserError, match=r"ledger\.jsonl:1: .*damaged"):
        Ledger(path)


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"format": 9}\n')
    with pytest.raises(UserError, match="format 9"):
        Ledger(path)


def test_a_number_that_json_does_not_know_is_never_written(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        ledger.append({"event": "report", "score": float("nan")})
    assert len(list(read_events(ledger.path))) == 1
