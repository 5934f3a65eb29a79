"""`sweep list` and `sweep show` for other programs, and one trial in full."""

import json

import pytest

import search
from search.display.tables.sweeps_table import SweepRow
from spaces.load import load_recipe
from tests.commands import call, read
from training.errors import UserError

# Programs of users read these names: add new ones at the end, and never change one.
TRIAL = ["trial", "rank", "state", "reason", "origin", "score", "standard_error", "best_epoch", "epoch", "epochs"]
TRIAL += ["cost_seconds", "memory_mb", "host", "recipe"]
SWEEP = ["name", "state", "metric", "planned_trials", "trials"]
LISTED = ["name", "state", "done", "total", "metric", "score", "standard_error", "started", "folder"]


@pytest.fixture
def sweep(home, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return search.open("tiny")


def test_the_trials_as_json_have_the_exact_scores_and_whole_recipes(sweep, capsys):
    found = json.loads(read(capsys, "show", "tiny", "--json"))
    assert list(found) == SWEEP
    assert sorted(found["trials"][0]) == sorted(TRIAL)
    assert [found[name] for name in SWEEP[:4]] == ["tiny", "completed", "val_accuracy", 5]
    best = found["trials"][0]
    assert (best["trial"], best["score"], best["rank"]) == (sweep.best.number, sweep.best.score, 1)
    assert best["recipe"]["optimizer.lr"] == sweep.best.recipe.optimizer.lr
    assert len(found["trials"]) == 5


def test_the_sweeps_as_json(sweep, capsys):
    [row] = json.loads(read(capsys, "list", "--json"))
    assert (row["name"], row["done"], row["total"], row["score"]) == ("tiny", 5, 5, sweep.best.score)
    assert list(row) == list(SweepRow.__dataclass_fields__) == LISTED


def test_no_sweeps_are_an_empty_list(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert json.loads(read(capsys, "list", "--json")) == []


def test_one_trial_is_shown_with_its_recipe_its_curve_and_the_way_to_train_it_again(sweep, capsys):
    name = sweep.best.name
    (sweep.record.folder.trial(sweep.best.number) / "log.txt").write_text("first\nthe last line\n")
    shown = read(capsys, "show", "tiny", name)
    assert f"Trial {name} of tiny: completed" in shown
    assert "rank 1 of 5; 2 of 2 epochs" in shown
    assert f"Peak memory: {sweep.best.memory_mb:,.0f} MB" in shown
    assert "val_accuracy by epoch: " in shown
    assert "  the last line" in shown
    assert f"sweep export tiny --trial {name}" in shown
    assert f"lr: {sweep.best.recipe.optimizer.lr}" in shown
    assert read(capsys, "show", "tiny", str(int(name))) == shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "tiny", "99"], "99: tiny has no such trial. It has 0000 to 0004"),
        (["show", "tiny", "best"], "best: tiny has no such trial"),
        (["show", "tiny", "0001", "--json"], "it gives all trials"),
    ],
)
def test_a_mistake_ends_in_one_sentence(sweep, arguments, words):
    with pytest.raises(UserError, match=words):
        call(*arguments)


def test_the_versions_that_a_report_of_a_fault_needs(capsys):
    shown = read(capsys, "--version")
    assert shown.startswith("sweep 0.1.0 (Python 3.")
    assert "torch 2." in shown


def test_a_recipe_that_is_broken_for_a_narrow_terminal_is_the_same_recipe(sweep, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    shown = read(capsys, "show", "tiny", sweep.best.name)
    recipe = shown[shown.index("format: 1") :]
    assert max(map(len, recipe.splitlines())) <= 50
    (tmp_path / "copied.yaml").write_text(recipe)
    assert load_recipe(tmp_path / "copied.yaml") == sweep.best.recipe
