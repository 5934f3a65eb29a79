"""The Python API: what its functions return and raise, and what they leave alone in the caller's process."""

import errno
import signal
from inspect import signature
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from rich.console import Console
from typer.main import get_command

import search
from analysis.loading import load
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.arguments import absolute_uri
from search.cli.main import app
from search.request import read_request
from search.runner.interrupt import Interrupted, listen
from search.sweep_options import SweepOptions
from spaces.load import load_space
from training.errors import UserError

QUIET = Console(quiet=True)
OUTPUT = {"quiet", "verbose"}  # options of the command alone


def test_an_opened_sweep_has_its_best_trial_and_exports_it(home):
    result = search.open("tiny", console=QUIET)
    assert repr(result) == "Result('tiny', completed, 5 trials)"
    assert result.best.score == max(trial.score for trial in result.trials)
    assert result.best.recipe.backbone.name == "test_resnet"
    assert result.export() == home.joinpath("exports/tiny").relative_to(home)
    assert (home / "exports" / "tiny" / "model.safetensors").exists()
    other = result.export("other", trial=0)
    assert "0000" in (home / other / "MODEL_CARD.md").read_text()


def test_a_sweep_in_a_notebook_shows_its_best_trials(home):
    result = search.open("tiny", console=QUIET)
    assert f"<tr><td>{result.best.name}</td><td>completed</td>" in result._repr_html_()


def test_each_option_of_a_command_is_an_argument_of_its_function_and_is_described():
    commands = get_command(app).commands
    for name, alone in (("run", {"publish", "check", *OUTPUT}), ("resume", OUTPUT)):
        function = getattr(search, name)
        arguments = signature(function).parameters.keys() - {"console"}
        assert arguments == {one.name for one in commands[name].params} - alone
        assert [argument for argument in arguments if f"    {argument}: " not in function.__doc__] == []
    assert "through a store.\n\nArgs:\n    name: " in search.open.__doc__
    with pytest.raises(TypeError, match="trails"):
        search.run("quick", trails=3)


@pytest.mark.parametrize(
    ("given", "variable", "expected"),
    [
        (None, None, "technique-search"),
        (None, "birds", "birds"),
        (None, "", "technique-search"),
        ("mine", "birds", "mine"),
    ],
)
def test_a_sweep_from_python_and_its_reader_take_mlflows_variable_for_the_experiment(
    given, variable, expected, monkeypatch
):
    if variable is not None:
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", variable)
    assert read_request(SweepOptions("quick", experiment=given)).settings.experiment == expected


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: search.open("none"), "none: no such sweep"),
        (lambda: search.run("quick", trials=0), "--trials=0: give a number from 1"),
        (lambda: search.run("quick", ["epochs=0"]), "epochs"),
        (lambda: search.run("quick", time_budget="soon"), "--time-budget=soon: this is not a time"),
        (lambda: search.run("quick", time_budget=-1), "--time-budget=-1: give a number from 1"),
        (lambda: search.run("quick", warm_start=["none"]), "--warm-start=none: no such sweep"),
        (lambda: search.resume("none", 3), "none: no such sweep"),
        (lambda: search.resume("tiny", tracking_uri="nonsense"), "nonsense"),
        (lambda: search.resume("tiny", cpus_per_trial=float("nan")), "--cpus-per-trial=nan"),
        (lambda: search.open("tiny").export(trial=77), "--trial=0077: tiny has no such trial"),
        (lambda: search.open("tiny").confirm(seeds=1), "--seeds=1: an interval needs at least two seeds"),
    ],
)
def test_a_mistake_raises_one_sentence_and_makes_nothing(home, call, words):
    before = sorted(home.rglob("*"))
    with pytest.raises(UserError, match=words):
        call()
    assert sorted(home.rglob("*")) == before


def test_a_signal_raises_the_exception_that_python_has_for_it_and_handlers_stay(home, monkeypatch):
    import search.runner.sweep

    def interrupted(*_, **__):
        listen()  # as a driver does
        raise Interrupted(signal.SIGINT, "Continue with: sweep resume tiny")

    monkeypatch.setattr(search.runner.sweep, "resume_sweep", interrupted)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(KeyboardInterrupt, match="Ctrl-C. Continue with: sweep resume tiny"):
        search.resume("tiny", 1, console=QUIET)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_completed_sweep_moves_to_another_store(home, trained_sweep, monkeypatch):
    before = search.resume("tiny", tracking_uri="sqlite:///first.db", console=QUIET).record
    with pytest.raises(UserError, match="tiny is completed: all 5 trials have ended"):
        search.resume("tiny", console=QUIET)
    moved = search.resume("tiny", tracking_uri="sqlite:///other.db", console=QUIET)
    assert moved.undelivered == 0
    again = search.open("tiny", console=QUIET).record
    assert again.settings.tracking_uri == f"sqlite:///{home}/other.db"
    assert set(again.run_ids) == set(before.run_ids)
    assert not set(again.run_ids.values()) & set(before.run_ids.values())
    sweep = load("tiny", again.settings.tracking_uri)
    assert [round(score, 9) for score in sweep.trials.score] == [round(trial.score, 9) for trial in before.trials]
    assert moved.plot.parallel().sweep.trials["trial"] == sweep.trials.trial.tolist()
    logged = []
    monkeypatch.setattr("search.evaluation.report.log_results", lambda *given: logged.append(given[-1]))
    search.open("tiny", tracking_uri="sqlite:///other.db", console=QUIET).report()
    assert logged == [f"sqlite:///{home}/other.db"]  # not to the store that the ledger names
    with pytest.raises(UserError, match="--address=127.0.0.1:9: no Ray cluster answers there"):
        search.resume("tiny", address="127.0.0.1:9", console=QUIET)
    assert search.open("tiny", console=QUIET).record.settings.address is None


def test_a_sweep_continues_on_other_machines_and_what_these_refuse_stays_as_it_was(home, monkeypatch):
    import search.runner.sweep as sweep

    tried = []

    def refuse(start):
        it = start.settings
        tried.append((it.address, it.gpus_per_trial, it.max_concurrent, it.accelerator))
        raise UserError("no machine")

    monkeypatch.setattr(sweep.Preparation, "run", refuse)
    monkeypatch.setattr(sweep, "probe_cluster", lambda address: None)
    ledger = home / "sweeps" / "tiny" / "ledger.jsonl"
    before = ledger.read_bytes()
    placing = {"max_concurrent": 3, "accelerator": "A100"}
    for changes in ({"address": "head:6379", "gpus_per_trial": 0.5}, placing, {}):
        with pytest.raises(UserError, match="no machine"):
            search.resume("tiny", 1, **changes, console=QUIET)
    assert tried == [("head:6379", 0.5, None, None), (None, None, 3, "A100"), (None, None, None, None)]
    assert ledger.read_bytes() == before

    def interrupt(start):
        raise Interrupted(2)

    monkeypatch.setattr(sweep.Preparation, "run", interrupt)
    with pytest.raises(KeyboardInterrupt, match="Continue with: sweep resume tiny --trials 3"):
        search.resume("tiny", 3, console=QUIET)
    assert ledger.read_bytes() == before


class Enough(Exception):
    """What a test looks at has happened."""


def test_the_time_budget_of_a_resume_is_one_of_its_settings(home, monkeypatch):
    import search.runner.sweep as sweep

    prepared = SimpleNamespace(space=None, dataset=None, capacity=None, resolve=lambda recipe: recipe)
    monkeypatch.setattr(sweep.Preparation, "run", lambda start: prepared)
    monkeypatch.setattr(sweep.SweepRun, "run", Mock(side_effect=Enough))
    for given, seconds in (("10m", 600.0), (None, None)):
        with pytest.raises(Enough):
            search.resume("tiny", 1, time_budget=given, console=QUIET)
        assert search.open("tiny", console=QUIET).record.settings.time_budget_seconds == seconds


def test_a_sweep_whose_machine_is_lost_is_fetched_before_its_preset_looks_for_its_space(home, monkeypatch):
    monkeypatch.setattr("search.api._read", Mock(side_effect=Enough))
    (home / "store").mkdir()
    (home / "sweeps" / "tiny").rename(home / "store" / "tiny")
    (home / "store" / "tiny" / "preset.yaml").write_text("kept")
    given = {"preset": "fast", "name": "tiny", "copy_to": f"file://{home}/store", "console": QUIET}
    for or_resume in (False, True):
        with pytest.raises(Enough):
            search.run(overrides=["data.root=photos"], or_resume=or_resume, **given)
        assert (home / "sweeps" / "tiny" / "preset.yaml").exists() == or_resume


def test_a_new_sweep_that_finds_no_room_leaves_nothing(tmp_path, monkeypatch):
    from search.runner.sweep import create_folder, make_header

    monkeypatch.setattr(Ledger, "append", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    space = load_space("quick")
    with pytest.raises(OSError, match="No space left"):
        create_folder(SweepFolder(tmp_path / "new"), make_header("new", "1", space, Settings()))
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_a_scheduler_repeats_continues_the_sweep_or_returns_it(home, monkeypatch):
    import search.runner.sweep as sweep

    space, again = str(home / "sweeps" / "tiny" / "space.yaml"), {"name": "tiny", "or_resume": True, "console": QUIET}
    resumed = []

    def resume_sweep(folder, display, seconds=None, more_trials=0, changes=None, page=None):
        resumed.append(changes)
        raise UserError("resumed")

    with monkeypatch.context() as patched:
        patched.setattr(sweep, "resume_sweep", resume_sweep)
        with pytest.raises(UserError, match="resumed"):  # MLflow lacks its results
            search.run(space, tracking_uri="sqlite:///first.db", gpus_per_trial=0.5, **again)
    assert resumed == [{"gpus_per_trial": 0.5, "tracking_uri": f"sqlite:///{home}/first.db", "address": None}]
    search.resume("tiny", tracking_uri="sqlite:///first.db", console=QUIET)
    monkeypatch.setattr(sweep, "resume_sweep", resume_sweep)
    assert search.run(space, tracking_uri="sqlite:///first.db", **again).state == "completed"
    for change, words in ((["data.train_size=50"], "another value of data"), (["search.trials=9"], "value of search")):
        with pytest.raises(UserError, match=words):
            search.run(space, change, **again)
    with pytest.raises(UserError, match="--or-resume: give the name"):
        search.run(space, or_resume=True)
    with pytest.raises(UserError, match="--tag=vision: write it as name=value"):
        search.run(space, tags=["vision"])


def test_paths_inside_choices_become_absolute_too(home):
    from search.arguments import absolute_paths
    from spaces.load import load_space

    options = "{choice: [{name: resnet18, weights: mine.safetensors}, {name: resnet18, weights: none}]}"
    space = absolute_paths(load_space("quick", [f"backbone={options}"]))
    assert [option["weights"] for option in space.recipe["backbone"].options] == [f"{home}/mine.safetensors", "none"]
    teachers = absolute_paths(load_space("quick", ["distillation={teacher: {choice: [null, big]}, temperature: 2.0}"]))
    assert teachers.recipe["distillation"]["teacher"].options == (None, f"{home}/big")
    space = absolute_paths(load_space("quick", ["backbone.weights={choice: [letters, mine.safetensors]}"]))
    assert space.recipe["backbone"]["weights"].options == ("letters", f"{home}/mine.safetensors")


def test_the_path_of_a_store_has_one_spelling(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert absolute_uri("sqlite:///../m.db?timeout=5") == f"sqlite:///{tmp_path}/m.db?timeout=5"
