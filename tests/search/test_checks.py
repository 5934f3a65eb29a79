"""`sweep run --check`: every check is made, and nothing is left."""

from io import StringIO

import pytest
from rich.console import Console

from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.api import check
from search.checks import Check, print_checks
from search.cli.main import app
from search.runner.machines.cluster import Node
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from training.errors import UserError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    from search import checks

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "this_machine", lambda: Node("", "laptop", 4, 0))
    return tmp_path


def by_name(*overrides, **arguments):
    return {one.name: one for one in check("quick", overrides, **arguments)}


def test_a_sweep_that_can_start_passes_every_check_and_leaves_no_file(home):
    found = by_name("data.train_size=64")
    assert list(found) == ["storage", "tracking", "machines", "weights", "data"]
    assert [one.sentence for one in found.values() if not one.is_ok] == []
    assert found["machines"].sentence.startswith("laptop with 4 CPUs and 0 GPUs; 4 trials at the same time, 1 CPU each")
    assert found["data"].sentence.startswith("digits has 10 classes and 64 training")
    assert found["data"].sentence.endswith(
        "; with these, 16 trials hardly show effects of techniques below 2.4 points of accuracy."
    )
    assert list(home.iterdir()) == []


def test_all_checks_are_made_also_after_the_first_that_fails(home, capsys):
    (home / "taken").write_text("")
    arguments = ["run", "card", "data={name: image_folder, root: photos}", "--check", "--storage", "taken"]
    arguments += ["--tracking-uri", "http://127.0.0.1:9", "--cpus-per-trial", "9", "backbone.weights=none.pth"]
    with pytest.raises(UserError, match=r"5 checks failed \(storage, tracking, machines, weights, data\)"):
        app(arguments, standalone_mode=False)
    shown = capsys.readouterr().out
    for words in (
        "--storage=",
        "connection refused",
        "--cpus-per-trial=9",
        "none.pth: no such file",
        "photos: no such",
    ):
        assert words in shown
    assert [path.name for path in home.iterdir()] == ["taken"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_sentence_is_broken_between_words_in_a_terminal_and_not_in_a_file(is_terminal, monkeypatch):
    console = Console(file=StringIO(), width=80, force_terminal=is_terminal, color_system=None)
    monkeypatch.setattr("search.checks.make_console", lambda: console)
    print_checks([Check("data", True, "images " * 40, ("images " * 30,))])
    lines = console.file.getvalue().splitlines()
    assert (max(map(len, lines)) <= 80) == is_terminal
    assert not is_terminal or all(line.split()[-1] in ("images", "written.") for line in lines)


def test_a_name_that_is_taken_fails_unless_the_sweep_is_continued(home):
    create_folder(SweepFolder(home / "sweeps" / "mine"), make_header("mine", "1", load_space("quick"), Settings()))
    assert "exists already" in by_name(name="mine")["storage"].sentence
    again = by_name(name="mine", or_resume=True)["storage"]
    assert again.is_ok
    assert "sweeps/mine exists, so the sweep continues" in again.sentence
    assert "sweeps/new can be written" in by_name(name="new", or_resume=True)["storage"].sentence


def test_an_mlflow_server_that_answers_is_named_and_gets_no_experiment(home, serve_mlflow):
    from mlflow import MlflowClient

    uri = f"http://127.0.0.1:{serve_mlflow(f'sqlite:///{home}/mlflow.db')}"
    sentence = by_name(tracking_uri=uri, experiment="mine")["tracking"].sentence
    assert sentence == f"{uri} answers; the experiment mine will be created."
    client = MlflowClient(uri)
    assert client.get_experiment_by_name("mine") is None
    client.delete_experiment(client.create_experiment("mine"))
    assert "it was deleted in MLflow" in by_name(tracking_uri=uri, experiment="mine")["tracking"].sentence
