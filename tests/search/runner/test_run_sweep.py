"""The start of a sweep, without machines and without a store."""

from types import SimpleNamespace

import pytest

from ledger.events import WarmStart
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.display.sweep_display import SweepDisplay
from search.display.terminal import make_console
from search.runner import sweep
from search.runner.sweep import create_folder, make_header
from search.runner.sweep_run import SweepEnd
from spaces.load import load_space
from training.errors import UserError


def test_ledger_and_store_get_the_first_events_of_a_new_sweep(tmp_path, monkeypatch):
    space, sent = load_space("quick"), []
    prepared = SimpleNamespace(space=space, dataset=None, files={}, capacity=None, resolve=lambda recipe: recipe)
    monkeypatch.setattr(sweep, "check_early", lambda *given: None)
    monkeypatch.setattr(sweep.Preparation, "run", lambda self: prepared)
    monkeypatch.setattr(sweep, "_make_tracking", lambda *given: SimpleNamespace(replay=sent.extend))
    monkeypatch.setattr(sweep.SweepRun, "run", lambda self: SweepEnd(self.controller, "completed", 0))
    opening = WarmStart(recipes=space.baselines()[:1])
    display = SweepDisplay(make_console())
    kept = sweep.run_sweep(SweepFolder(tmp_path / "new"), space, Settings(), display, [opening])
    assert kept.record.ledger.events[1:] == [opening]
    assert [event.event for event in sent] == ["sweep", "warm_start"]


def test_of_two_sweeps_with_one_name_the_second_ends_in_one_sentence_and_leaves_nothing(tmp_path):
    folder, space = SweepFolder(tmp_path / "mine"), load_space("quick")
    create_folder(folder, make_header("mine", "1", space, Settings()))
    ledger = folder.ledger.read_bytes()
    with pytest.raises(UserError, match="^--name=mine: another sweep with this name has just started"):
        create_folder(folder, make_header("mine", "2", space, Settings()))
    assert folder.ledger.read_bytes() == ledger
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
