"""Mistakes of a user: each ends in one sentence before any file is created."""

import errno
import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

import search.cli.main
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.arguments import absolute_uri, parse_duration
from search.runner.interrupt import Interrupted
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from tests.commands import call
from training.errors import UserError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def make_sweep(storage, name):
    folder = SweepFolder(storage / "sweeps" / name)
    create_folder(folder, make_header(name, "1", load_space("quick"), Settings()))
    return folder


MISTAKES = {
    "a misspelt space": (["run", "quik"], "quik.*quick"),
    "a time that is none, of a copy": (
        ["resume", "lost", "--from", "file:///copies", "--time-budget", "abc"],
        "--time-budget=abc: this is not a time",
    ),
    "a misspelt technique": (["run", "quick", "mixpu.alpha=1"], "mixpu.*mixup"),
    "a misspelt hyperparameter": (["run", "quick", "label_smoothing.alpa=0.1"], "alpa.*alpha"),
    "a misspelt domain": (["run", "quick", "label_smoothing.alpha={unifrom: [0, 0.1]}"], "unifrom.*uniform"),
    "low above high": (["run", "quick", "label_smoothing.alpha={uniform: [0.3, 0.1]}"], "0.3.*0.1"),
    "the log of zero": (["run", "quick", "optimizer.lr={log_uniform: [0, 0.1]}"], "log_uniform.*0"),
    "an illegal value in a choice": (["run", "quick", "unfreeze.level={choice: [last, mots]}"], "mots.*most"),
    "an override inside a choice": (["run", "card", "optimizer.lr=0.1"], r"optimizer=\{name: sgd, lr: 0.1\}"),
    "techniques that conflict": (["run", "quick", "schedule.warmup_epochs=20"], "warmup_epochs=20"),
    "min_epochs above epochs": (
        ["run", "quick", "epochs=1", "search.scheduler.min_epochs=3"],
        r"epochs=1 is below search\.scheduler\.min_epochs=3: no trial could reach the first rung",
    ),
    "no trials": (["run", "quick", "--trials", "0"], "--trials=0"),
    "no unit after an hour": (["run", "quick", "--time-budget", "1h30"], "this is not a time. Write it as"),
    "two points": (["run", "quick", "--time-budget", "1.5.5"], "this is not a time. Write it as"),
    "no time": (["run", "quick", "--time-budget", "soon"], "--time-budget=soon: this is not a time"),
    "no time at all": (["run", "quick", "--time-budget", "0s"], "--time-budget=0s: give more than 0 s, such as 90s"),
    "no number of CPUs": (
        ["run", "quick", "--cpus-per-trial", "nan"],
        "--cpus-per-trial=nan: give a number from 0.001",
    ),
    "infinitely many CPUs": (["run", "quick", "--cpus-per-trial", "inf"], "--cpus-per-trial=inf"),
    "no number of GPUs": (["run", "quick", "--gpus-per-trial", "nan"], "--gpus-per-trial=nan: give 0, or a number"),
    "trials without end": (["run", "quick", "--trials", "9" * 20], "--trials=9+: give a number from 1 to 1,000,000"),
    "a seed without end": (["run", "quick", "--seed", "9" * 20], "--seed=9+: give a number from 0"),
    "weights kept without end": (["run", "quick", "--keep-best", "9" * 20], "--keep-best=9+"),
    "CPUs without end": (["train", "recipe.yaml", "--cpus", "9" * 20], "--cpus=9+"),
    "a time without end": (["run", "quick", "--time-budget", "9" * 90 + "h"], "--time-budget=9+h: longer than a year"),
    "a time of 500 digits": (
        ["run", "quick", "--time-budget", "9" * 500 + "h"],
        "--time-budget=9+h: this is not a time",
    ),
    "negative GPUs": (["run", "quick", "--gpus-per-trial", "-1"], "--gpus-per-trial=-1"),
    "a folder that is not there": (
        ["run", "quick", "data={name: image_folder, root: photos}"],
        r"data\.root=.*photos: no such folder",
    ),
    "more training images than there are": (["run", "quick", "data.train_size=5000"], r"data\.train_size=5000"),
    "an unknown sweep": (["show", "nothing"], "nothing: no such sweep"),
    "an export of an unknown sweep": (["export", "nothing"], "nothing: no such sweep"),
    "an unknown sweep to start from": (["run", "quick", "--warm-start", "nothing"], "nothing: no such sweep"),
    "a backbone that there is not": (
        ["run", "quick", "backbone.name=resnet19"],
        "backbone.name=resnet19: .*Did you mean",
    ),
    "a backbone that there is not, shown": (
        ["space", "quick", "backbone.name=resnet19"],
        "name=resnet19: .*Did you mean",
    ),
    "a search for one recipe": (
        ["train", "recipe.yaml", "search.trials=4"],
        r"search\.trials=4: this command trains one recipe",
    ),
    "a search for a space's baseline": (["train", "quick", "search.trials=4"], "this command trains one recipe"),
    "a recipe whose images moved": (
        ["train", "recipe.yaml", "data={name: image_folder, root: photos}"],
        r"data\.root=.*photos: no such folder.* If the images moved, add data\.root=NEW/FOLDER\.$",
    ),
    "a recipe whose table moved": (
        ["train", "recipe.yaml", "data={name: manifest, path: list.csv}"],
        r"data\.path=.*list.csv: .* If the images moved, add data\.path=NEW/FILE\.$",
    ),
    "a listing of a folder that is not there": (
        ["list", "--storage", "nowhere"],
        "--storage=nowhere: there is no such folder",
    ),
    "a recipe that is not there": (["train", "nothing.yaml"], "nothing.yaml"),
    "an unknown metric": (["train", "recipe.yaml", "--metric", "accuracy"], "--metric=accuracy: choose one of"),
    "no store to look at": (["ui"], "no such database"),
    "a Ray cluster that does not answer": (["run", "quick", "--address", "127.0.0.1:9"], "--address=127.0.0.1:9"),
    "a tracking server that does not answer": (
        ["run", "quick", "--tracking-uri", "http://127.0.0.1:9", "--address", "127.0.0.1:9"],
        "127.0.0.1:9",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_sentence_and_no_file_is_created(mistake, tmp_path):
    (tmp_path / "space.yaml").write_text(load_space("quick").to_yaml())
    (tmp_path / "recipe.yaml").write_text("format: 1\nrecipe: {epochs: 1}\n")
    before = sorted(tmp_path.iterdir())
    arguments, words = MISTAKES[mistake]
    with pytest.raises(UserError, match=words) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value).strip()
    assert [path for path in sorted(tmp_path.iterdir()) if path not in before and path.name != "sweeps"] == []
    assert not list(tmp_path.glob("sweeps/*"))


@pytest.mark.parametrize("text", ["", "recipe: [", "format: 1\n", "format: 7\nrecipe: {}\n", "just words"])
def test_the_message_about_a_file_that_is_no_space_names_the_file(text, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        call("run", "mine.yaml")


def test_a_taken_name_is_refused(tmp_path):
    make_sweep(tmp_path, "mine")
    with pytest.raises(UserError, match="--name=mine: .* exists already"):
        call("run", "quick", "--name", "mine")


def test_a_sweep_without_a_completed_trial_exports_nothing(tmp_path):
    make_sweep(tmp_path, "mine")
    with pytest.raises(UserError, match="mine has no completed trial, so it has no best one"):
        call("export", "mine")
    assert not (tmp_path / "exports").exists()


def test_a_sweep_that_does_not_run_cannot_be_stopped(tmp_path):
    make_sweep(tmp_path, "mine")
    with pytest.raises(UserError, match="mine is not running"):
        call("stop", "mine")


def test_a_sweep_is_removed_and_others_stay(tmp_path, capsys):
    make_sweep(tmp_path, "mine")
    make_sweep(tmp_path, "yours")
    call("rm", "mine", "--yes")
    call("list")
    assert "yours" in capsys.readouterr().out
    assert not (tmp_path / "sweeps" / "mine").exists()


def test_the_default_recipe_is_printed_and_loads_again(tmp_path, capsys):
    from spaces.load import load_recipe
    from training.recipe import Recipe

    call("space", "default")
    (tmp_path / "default.yaml").write_text(capsys.readouterr().out)
    assert load_recipe(tmp_path / "default.yaml") == Recipe()


def test_a_space_is_printed_with_its_comments_or_with_what_the_command_sets(tmp_path, capsys):
    from spaces.load import BUNDLED, load_space

    call("space", "card")
    assert capsys.readouterr().out == (BUNDLED / "card.yaml").read_text()
    call("space", "card", "epochs=3", "search.trials=7")
    (tmp_path / "mine.yaml").write_text(capsys.readouterr().out)
    mine = load_space(tmp_path / "mine.yaml")
    assert (mine.recipe["epochs"], mine.search.trials) == (3, 7)
    assert mine == load_space("card", ["epochs=3", "search.trials=7"])


def test_a_mistake_exits_with_2_and_no_traceback():
    # In a separate process, because the command ends its process at once.
    code = "from search.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "run", "quik"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("sweep: quik")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("8.0m", 480), ("90", 90)],
)
def test_a_time_budget_is_parsed(text, seconds):
    assert parse_duration(text) == seconds


def test_the_address_of_a_database_does_not_depend_on_the_folder(tmp_path):
    assert absolute_uri("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert absolute_uri("http://server:5000") == "http://server:5000"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize(
    ("line", "patched"),
    [
        ("run quick", "search.runner.sweep.run_sweep"),
        ("resume mine", "search.runner.sweep.resume_sweep"),
        ("confirm mine", "search.evaluation.replications.confirmation.replicate"),
        ("ablate mine", "search.evaluation.replications.ablation.replicate"),
    ],
)
def test_a_signal_ends_a_command_with_its_own_exit_code_and_a_sentence(
    line, patched, number, code, tmp_path, monkeypatch, capsys
):
    make_sweep(tmp_path, "mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sweep", *line.split()])
    monkeypatch.setattr(patched, Mock(side_effect=Interrupted(number, "Continue with: sweep resume mine")))
    assert search.cli.main._run_command() == code
    assert capsys.readouterr().err.endswith(". Continue with: sweep resume mine\n")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "/a/b: No space left on device. Mend this, then give the command again."),
        (errno.EACCES, "/a/b: Permission denied. Mend this, then give the command again."),
    ],
)
def test_what_no_program_can_avoid_ends_in_a_sentence(number, words, tmp_path, monkeypatch, capsys):
    make_sweep(tmp_path, "mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sweep", "stop", "mine"])
    failure = Mock(side_effect=OSError(number, os.strerror(number), "/a/b"))
    monkeypatch.setattr("search.evaluation.requests.request_end", failure)
    assert search.cli.main._run_command() == 2
    assert capsys.readouterr().err == f"sweep: {words}\n"


def test_a_shell_completes_commands_options_and_names_of_sweeps(tmp_path):
    make_sweep(tmp_path, "mine")
    code = "from search.cli.main import main; main()"

    def complete(words):
        more = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_SWEEP_COMPLETE": "complete_bash"}
        ran = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.argv = ['sweep']; {code}"],
            env=os.environ | more,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return ran.stdout.split()

    assert complete("sweep conf") == ["confirm"]
    assert complete("sweep show mi") == ["mine"]
    assert complete("sweep show --li") == ["--limit"]


def test_ctrl_c_ends_a_command_quietly_while_it_is_imported():
    code = """
import os, signal, sys
import search.__main__

class Interrupt:
    def find_spec(name, *rest):
        if name == "search.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
assert not [name for name in sys.modules if name.startswith(("typer", "pydantic"))]
search.__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
