"""A sweep with parts of plugins that are not loaded is shown by every command that only reads it; others refuse it."""

import json
import re
import shutil
from pathlib import Path

import pytest

import search
from analysis import load
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.cli.main import app
from search.evaluation.follow import Follower, read_folder
from spaces.load import load_space, parse_space
from tests.analysis.made_up import simulate, write
from training import plugins
from training.contract.own_parts import list_codes
from training.errors import UserError
from training.recipe import Recipe

SPACE = """
format: 1
recipe:
  data: {name: shapes, count: 40}
  backbone: {source: own, name: small_net, weights: none}
  epochs: 9
  augmentation: {choice: [{policy: none}, {policy: posterised, bits: {int_uniform: [2, 6]}}]}
  loss: {choice: [{name: cross_entropy}, {name: brier}]}
  schedule: {name: inverse_sqrt, warmup_epochs: 0.5}
  optimizer: {name: radam, lr: {log_uniform: [0.003, 0.03]}, beta1: 0.8}
  input_noise: {choice: [{strength: 0.0}, {strength: {uniform: [0.01, 0.5]}}]}
search: {trials: 20, sampler: random, baseline: {input_noise: {strength: 0.0}}}
"""
FILES = ("input_noise.py", "radam.py", "inverse_sqrt.py", "brier.py", "posterised.py", "shapes.py")
PARTS = (
    *("augmentation posterised", "backbone small_net", "data shapes", "loss brier", "optimizer radam"),
    *("schedule inverse_sqrt", "technique input_noise"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the sweep `own` of a space that uses every kind of plugin, without their files."""
    home = tmp_path_factory.mktemp("home")
    text = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
    for name, block in zip(FILES, re.findall(r"```python\n(.*?)```", text, re.DOTALL), strict=False):
        (home / name).write_text(block)
    plugins.load([home / name for name in FILES])
    space = parse_space(SPACE, "own")
    (home / "sweeps").mkdir()
    write(home / "sweeps", "own", space, simulate(space).events)
    plugins.forget()
    return home


@pytest.fixture(autouse=True)
def nothing_loaded(home, monkeypatch):
    monkeypatch.chdir(home)
    plugins.forget()
    yield
    plugins.forget()


def run(capsys, *arguments):
    app([*arguments], standalone_mode=False)
    said = capsys.readouterr()
    return said.out, " ".join((said.out + said.err).split())


def test_states_scores_and_values_are_shown(capsys):
    shown, said = run(capsys, "show", "own")
    assert all(part in said for part in PARTS)
    assert "of a plugin that is not loaded" in said
    assert "give its file with --plugin FILE" in said
    assert "0003" in shown
    rows = json.loads(run(capsys, "show", "own", "--json")[0])["trials"]
    plugins.load([Path(name) for name in FILES])
    loaded = json.loads(run(capsys, "show", "own", "--json")[0])["trials"]
    assert len(rows) == 20
    facts = ("trial", "state", "score", "epoch")
    assert [[row[fact] for fact in facts] for row in rows] == [[row[fact] for fact in facts] for row in loaded]
    for path in ("optimizer.lr", "optimizer.beta1", "data.count", "schedule.warmup_epochs", "backbone.name"):
        assert [row["recipe"][path] for row in rows] == [row["recipe"][path] for row in loaded], path
    bits = {row["recipe"].get("augmentation.bits") for row in rows}
    assert bits == {row["recipe"].get("augmentation.bits") for row in loaded}
    on = [row["recipe"]["input_noise.strength"] for row in loaded if row["recipe"]["input_noise.strength"]]
    assert on == [row["recipe"]["input_noise.strength"] for row in rows if row["recipe"]["input_noise.strength"]]


def test_list_report_the_running_page_and_notebooks_read_it(capsys, home):
    shown, said = run(capsys, "list")
    assert "20/20" in shown
    assert "! own: This sweep has the augmentation posterised, " in said
    shutil.copytree(home / "sweeps" / "own", home / "sweeps" / "copy", dirs_exist_ok=True)
    assert "input_noise" in run(capsys, "report", "own")[1]
    assert "input_noise" in Path("reports/own.html").read_text()
    assert "0003" in run(capsys, "show", "own", "0003")[1]
    plugins.forget()
    assert len(load("own").trials) == 20
    plugins.forget()
    Follower(read_folder(SweepFolder(home / "sweeps" / "own")), Path("page.html")).write()
    assert "input_noise" in Path("page.html").read_text()


@pytest.mark.parametrize(
    "command",
    [["resume"], ["confirm"], ["ablate"], ["export"]],
    ids=lambda words: words[0],
)
def test_a_command_that_trains_refuses_it(command, capsys):
    run(capsys, "show", "own")  # its placeholders change nothing
    with pytest.raises(
        UserError, match=r"own: this sweep has the .*technique input_noise.*: give its file with --plugin"
    ):
        run(capsys, command[0], "own", *command[1:])
    with pytest.raises(UserError, match="give its file with --plugin"):
        search.open("own").confirm()


def test_placeholders_end_with_the_next_command(home):
    search.open("own")
    assert "input_noise" in Recipe.model_fields
    with pytest.raises(UserError, match="give its file with --plugin"):
        SweepRecord.open(SweepFolder(home / "sweeps" / "own"))
    search.open("own", plugins=FILES)
    assert all(code != "not loaded" for code in list_codes().values())
    plugins.forget()
    search.open("own")
    plugins.load()
    with pytest.raises(UserError, match="a recipe has no input_noise"):
        load_space("card", ["input_noise={strength: 0.1}"])
