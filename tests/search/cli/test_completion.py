"""What a shell completes, and what a command does without the name of a sweep."""

import os
from types import SimpleNamespace

import pytest

from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.core.controller import Controller
from search.runner.sweep import create_folder, make_header
from search.sweep_options import complete_field, complete_space, complete_trial
from spaces.load import load_space
from tests.commands import call, read
from training.errors import UserError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Two sweeps; the ledger of `quick-1` was written last."""
    monkeypatch.chdir(tmp_path)
    for name, written in (("quick-1", 2000), ("quick-2", 1000)):
        folder = SweepFolder(tmp_path / "sweeps" / name)
        create_folder(folder, make_header(name, name, load_space("quick"), Settings()))
        Controller(load_space("quick"), Ledger(folder.ledger)).next_trial()
        os.utime(folder.ledger, (written, written))
    return tmp_path


def test_spaces_fields_and_trials_are_completed(home):
    (home / "cats.yaml").touch()
    assert complete_space("c") == ["card", "cats.yaml"]
    assert "optimizer.lr=" in complete_field("optimizer.")
    assert "search.trials=" in complete_field("search.t")
    place = SimpleNamespace(params={"name": "quick-1"})
    assert complete_trial(place, "") == ["0000"]
    assert complete_trial(SimpleNamespace(params={"name": "none"}), "") == []
    assert complete_trial(SimpleNamespace(params={"name": None}), "") == []  # the name may come after the option


def test_show_takes_the_latest_sweep(home, capsys):
    assert read(capsys, "show").startswith("Sweep quick-1, the latest one:")
    call("show", "--json")
    shown = capsys.readouterr()
    assert shown.out.startswith("{")
    assert "quick-1, the latest one" in shown.err
    with pytest.raises(UserError, match="name the sweep"):
        call("report", "--from", "sqlite:///other.db")


def test_an_unknown_part_is_answered_with_the_nearest_names():
    with pytest.raises(UserError, match=r"a recipe has no label_smooth; it has label_smoothing") as refused:
        load_space("quick", ["label_smooth.alpha=0.1"])
    assert "label_smoothing" in str(refused.value)
    assert len(str(refused.value)) < 300
