"""`sweep run --check`: every check is made, nothing is left, and earlier sweeps give the time."""

from io import StringIO

import pytest
from rich.console import Console

from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.formatting import format_seconds
from ledger.settings import Settings
from search.api import check
from search.checking.checks import Check, print_checks
from search.cli.main import app
from search.core.controller import Controller
from search.planning.measured_space import file_of, save
from search.planning.packing import find_room
from search.planning.sweep_plan import plan_sweep
from search.request import read_request
from search.runner.machines.capacity import Capacity, Demand
from search.runner.machines.cluster import Node, fit_to_cluster
from search.runner.machines.preparation import inputs_of, make_resolver, prepare_machine
from search.runner.start.plan import PreparedSweep
from search.runner.sweep import create_folder, make_header
from search.sweep_options import SweepOptions
from spaces.load import load_space
from tests.search.planning.made_up import measure_made_up
from training.errors import UserError
from training.loop.epoch_report import Report


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    from search.checking import checks

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "this_machine", lambda: Node("", "laptop", 4, 0))
    return tmp_path


def by_name(*overrides, **arguments):
    return {one.name: one for one in check("quick", overrides, **arguments)}


def run_earlier(home, name, seconds, dataset):
    """Write the ledger of a sweep whose baseline runs 8 epochs, and whose last trial is stopped after 2."""
    space = load_space("quick", ["search.trials=4", "epochs=8", "search.scheduler={name: none}"])
    folder = SweepFolder(home / "sweeps" / name)
    create_folder(folder, make_header(name, "1", space, Settings(), dataset))
    controller = Controller(space, Ledger(folder.ledger))
    for last in (8, 8, 8, 2):
        number = controller.next_trial().number
        for epoch in range(1, last + 1):
            report = Report(epoch, {"train_seconds": seconds * epoch}, 0.5, 0.01, epoch, [], 0.0)
            controller.report(number, report)
        controller.end(number, "stopped")


def test_a_sweep_that_can_start_passes_every_check_and_leaves_no_file(home):
    found = by_name("data.train_size=64")
    assert list(found) == ["storage", "tracking", "machines", "weights", "data", "time"]
    assert [one.sentence for one in found.values() if not one.is_ok] == []
    assert found["machines"].sentence.startswith("laptop with 4 CPUs and 0 GPUs; 4 trials at the same time, 1 CPU each")
    assert found["data"].sentence.startswith("digits has 10 classes and 64 training")
    assert found["time"].sentence.startswith("unknown, because no earlier sweep")
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
    monkeypatch.setattr("search.checking.checks.make_console", lambda: console)
    print_checks([Check("data", True, "images " * 40, ("images " * 30,))])
    lines = console.file.getvalue().splitlines()
    assert (max(map(len, lines)) <= 80) == is_terminal
    assert not is_terminal or all(line.split()[-1] in ("images", "written.") for line in lines)


def test_a_name_that_is_taken_fails_unless_the_sweep_is_continued(home):
    run_earlier(home, "mine", 1.0, None)
    assert "exists already" in by_name(name="mine")["storage"].sentence
    again = by_name(name="mine", or_resume=True)["storage"]
    assert again.is_ok
    assert "sweeps/mine exists, so the sweep continues" in again.sentence
    assert "sweeps/new can be written" in by_name(name="new", or_resume=True)["storage"].sentence


def test_earlier_sweeps_with_the_same_data_and_backbone_give_the_time(home):
    from training.data.identity import identify
    from training.data.load_data import load_data

    spec = load_space("quick").baselines()[0].data
    dataset = identify(load_data(spec), spec)
    run_earlier(home, "same", 2.0, dataset)
    run_earlier(home, "other", 50.0, {**dataset, "digest": "another"})
    four = {"trials": 11, "max_concurrent": 4}
    # 3 baselines and 8 trials of 4 epochs at 2 s, on 4 slots; a quarter of each of the 8 with early stopping.
    space = ("epochs=4", "search.scheduler={name: asha}")
    assert by_name(*space, **four)["time"].sentence.startswith(
        "about 10 s, 22 s if no trial is stopped early: an epoch took 2 s in same"
    )
    none = by_name("epochs=4", "search.scheduler={name: none}", **four, time_budget="1h")["time"].sentence
    assert none.startswith("about 22 s: an epoch")
    assert none.endswith("the time budget ends it after 1 h 00 min.")


def keep_plan(home, request):
    """Keep made-up measurements as `sweep plan` does, and return the plan of the request."""
    (home / "sweeps").mkdir()
    fact = prepare_machine(str(home), [recipe.model_dump() for recipe in inputs_of(request.space)], 0)
    space, _ = fit_to_cluster(request.space, can_bf16=True, has_gpus=False, devices=1)
    node = Node("", "laptop", 4, 0)
    plan = PreparedSweep(space, Capacity(Demand(1, 0), [node]), make_resolver([fact]), {}, fact.dataset, nodes=(node,))
    measured = measure_made_up(plan)
    save(measured, file_of(home / "sweeps", plan))
    return plan_sweep(plan, measured, find_room(plan))


def test_a_kept_plan_gives_the_time_before_earlier_sweeps_do(home):
    planned = keep_plan(home, read_request(SweepOptions("quick", ["data.train_size=64"], storage=home / "sweeps")))
    run_earlier(home, "same", 2.0, {"digest": "another"})
    first = f"about {format_seconds(planned.seconds)}, {format_seconds(planned.seconds_full)} if no trial is stopped"
    assert by_name("data.train_size=64")["time"].sentence.startswith(first)
    alone = by_name("data.train_size=64", "search.scheduler={name: none}", max_concurrent=1)["time"].sentence
    assert alone.endswith(": `sweep plan` measured this space.")
    assert "stopped early" not in alone
    assert by_name("data.train_size=65")["time"].sentence.startswith("unknown, because no earlier sweep")


def test_an_mlflow_server_that_answers_is_named_and_gets_no_experiment(home, serve_mlflow):
    from mlflow import MlflowClient

    uri = f"http://127.0.0.1:{serve_mlflow(f'sqlite:///{home}/mlflow.db')}"
    sentence = by_name(tracking_uri=uri, experiment="mine")["tracking"].sentence
    assert sentence == f"{uri} answers; the experiment mine will be created."
    client = MlflowClient(uri)
    assert client.get_experiment_by_name("mine") is None
    client.delete_experiment(client.create_experiment("mine"))
    assert "it was deleted in MLflow" in by_name(tracking_uri=uri, experiment="mine")["tracking"].sentence
