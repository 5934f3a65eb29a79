"""`sweep add` and `sweep stop --trial`: the ledger holds each request, so a resume repeats nothing and loses nothing."""

import pytest
import typer

from ledger.events import DriverStarted, Replication, StopRequested, SweepClosed, TrialAdded
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.requests import ingest, list_requests, send_request
from ledger.settings import Settings
from search.cli.run.conclusion import conclude
from search.core.asha import Decision
from search.core.controller import STOPPED, Controller
from search.display.terminal import make_console
from search.result import Result
from search.runner.inbox import Inbox
from search.runner.sweep import create_folder, describe_progress, make_header
from spaces.load import load_space
from tests.commands import call
from training import plugins
from training.contract.own_parts import list_codes
from training.errors import UserError
from training.loop.epoch_report import Report
from training.recipe import Recipe

SPACE = load_space("quick", ["search.trials=4", "epochs=3", "search.scheduler={name: none}"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = SweepFolder(tmp_path / "sweeps" / "mine")
    create_folder(folder, make_header("mine", "1", SPACE, Settings()))
    return folder


def drive(folder):
    """A new driver, as a resume starts it."""
    return Controller(SPACE, Ledger(folder.ledger))


def finish(controller, trial):
    for epoch in range(trial.epoch + 1, trial.epochs + 1):
        report(controller, trial, epoch)


def report(controller, trial, epoch):
    return controller.report(trial.number, Report(epoch, {}, 0.5, 0.01, epoch, [], 0.0))


def run_all(controller):
    while (trial := controller.next_trial()) is not None:
        finish(controller, trial)
    return list(controller.trials)


def make_recipe(lr):
    baseline = SPACE.baselines()[0]
    return baseline.model_copy(update={"optimizer": baseline.optimizer.model_copy(update={"lr": lr})})


def test_an_added_recipe_is_one_more_trial_after_the_baselines(folder):
    controller = drive(folder)
    finish(controller, controller.next_trial())
    controller.accept(TrialAdded(request="a", recipe=make_recipe(0.0123)))
    trials = run_all(controller)
    assert [trial.origin for trial in trials] == [*["baseline"] * 3, "added", "sampler"]
    assert trials[3].recipe.optimizer.lr == 0.0123
    assert controller.is_done


def test_a_resume_trains_an_added_recipe_once(folder):
    first = drive(folder)
    for _ in range(3):
        finish(first, first.next_trial())
    for lr in (0.01, 0.02):
        first.accept(TrialAdded(request=f"{lr}", recipe=make_recipe(lr)))
    finish(first, first.next_trial())
    again = drive(folder)  # the first driver was killed; a request file may be left
    again.accept(TrialAdded(request="0.02", recipe=make_recipe(0.02)))
    trials = run_all(again)
    assert [trial.recipe.optimizer.lr for trial in trials if trial.origin == "added"] == [0.01, 0.02]
    assert len(trials) == 6


def test_a_grid_that_is_used_up_still_trains_an_added_recipe(folder):
    fixed = ["mixup={alpha: 0.0}", "optimizer.lr=0.01", "label_smoothing.alpha=0.0", "unfreeze.level=full"]
    search = ["search.trials=99", "search.scheduler={name: none}", "search.sampler=grid"]
    grid = load_space("quick", ["epochs=1", "batch_size={choice: [16, 32]}", *fixed, *search])
    controller = Controller(grid, Ledger(folder.ledger.with_name("grid.jsonl")))
    number = len(run_all(controller))
    assert controller.is_done
    controller.accept(TrialAdded(request="a", recipe=make_recipe(0.5)))
    assert not controller.is_done
    assert len(run_all(controller)) == number + 1
    assert controller.is_done


def test_a_stopped_trial_ends_after_its_epoch_and_stays_ended(folder):
    controller = drive(folder)
    trial, other = controller.next_trial(), controller.next_trial()
    assert report(controller, trial, 1) is Decision.CONTINUE
    controller.accept(StopRequested(request="s", trial=trial.number))
    assert trial.state == "running"
    assert report(controller, trial, 2) is Decision.STOP
    assert (trial.state, trial.reason, trial.epoch) == ("stopped", STOPPED, 2)
    assert report(controller, trial, 3) is Decision.STOP
    assert trial.epoch == 2
    assert report(controller, other, 1) is Decision.CONTINUE
    assert drive(folder).trials.by_number[trial.number].state == "stopped"


def test_a_trial_whose_driver_died_after_the_request_is_not_trained_on(folder):
    first = drive(folder)
    trial = first.next_trial()
    report(first, trial, 1)
    first.accept(StopRequested(request="s", trial=trial.number))
    again = drive(folder)
    again.take_over()
    assert again.next_trial().number != trial.number
    assert again.trials.by_number[trial.number].state == "stopped"


def test_a_request_for_an_unknown_trial_does_not_stop_a_later_one(folder):
    controller = drive(folder)
    controller.accept(StopRequested(request="s", trial=2))
    assert [trial for trial in run_all(controller) if trial.state != "completed"] == []


def test_the_inbox_takes_each_request_once(folder, caplog):
    controller = drive(folder)
    inbox = Inbox(folder, controller, lambda: None)
    recipe = make_recipe(0.01)
    send_request(folder, TrialAdded(request="a", recipe=recipe))
    (folder.requests / "0-strange.json").write_text('{"event": "end"}')
    inbox.collect()
    assert [added.recipe for added in controller.added] == [recipe]
    assert "is not a request" in caplog.text
    assert [path.name for path in folder.requests.iterdir()] == ["0-strange.unreadable"]
    send_request(folder, TrialAdded(request="a", recipe=recipe))  # as if its file could not be removed
    inbox.collect(at_once=True)
    assert len(controller.added) == 1


def test_a_resume_without_a_plugin_sets_its_request_aside(folder, request_of_a_plugin, caplog):
    folder.requests.mkdir()
    (folder.requests / "1-a.json").write_bytes(request_of_a_plugin)
    ingest(folder, Ledger(folder.ledger))
    assert "1-a.json is not a request that this driver can read" in caplog.text
    assert list(list_requests(folder)) == []


def test_a_recipe_with_a_plugin_is_refused_where_the_driver_was_started_without_it(folder, plugin, capsys):
    add = ("add", "mine", "hum.strength=0.5", "--plugin", str(plugin))
    controller = drive(folder)
    with folder.locked():
        controller.record(DriverStarted(threads=1, plugins=()))
        with pytest.raises(UserError, match="mine: its driver was started without the plugin of hum. Stop the sweep"):
            call(*add)
        assert not folder.requests.exists()
        controller.record(DriverStarted(threads=1, plugins=tuple(list_codes().values())))
        call(*add)
    assert "mine will train this recipe as one more trial when its driver has read" in capsys.readouterr().out
    [(_, event)] = list_requests(folder)
    assert event.recipe.hum.strength == 0.5


def test_without_a_driver_a_recipe_with_a_plugin_waits_for_one_that_has_it(folder, plugin):
    controller = drive(folder)
    controller.record(DriverStarted(threads=1, plugins=()))
    call("add", "mine", "hum.strength=0.5", "--plugin", str(plugin))
    assert SweepRecord.open(folder).added_since == 0
    plugins.forget()
    with pytest.raises(UserError, match="mine: this sweep has the technique hum, .* --plugin FILE"):
        SweepRecord.open(folder)


def test_a_request_that_came_after_the_last_look_is_taken_in_by_a_resume(folder):
    controller = drive(folder)
    run_all(controller)
    controller.record(SweepClosed(state="completed"))
    send_request(folder, event := TrialAdded(request="a", recipe=make_recipe(0.01)))
    record = SweepRecord.open(folder)
    assert record.is_done
    ingest(folder, Ledger(folder.ledger, record.events))
    assert list(list_requests(folder)) == []
    record = SweepRecord.open(folder)
    assert (record.is_done, record.budget) == (False, 5)
    send_request(folder, event)  # the driver died before it removed the file
    ingest(folder, Ledger(folder.ledger, record.events))
    assert SweepRecord.open(folder).budget == 5


def test_the_command_leaves_a_request_for_a_running_driver(folder, capsys):
    controller = drive(folder)
    controller.next_trial()
    with folder.locked():
        call("add", "mine", "optimizer.lr=0.0123", "batch_size=16")
        assert "mine will train this recipe as one more trial when its driver has read" in capsys.readouterr().out
        call("stop", "mine", "--trial", "0")
        assert "Trial 0000 of mine will end after its current epoch" in capsys.readouterr().out
        added, stop = (event for _, event in list_requests(folder))
    assert (added.recipe.optimizer.lr, added.recipe.batch_size) == (0.0123, 16)
    assert added.recipe.data == SPACE.baselines()[0].data
    assert stop.trial == 0


def test_without_a_driver_the_ledger_gets_the_request_and_a_resume_is_named(folder, capsys, tmp_path):
    controller = drive(folder)
    run_all(controller)
    controller.record(SweepClosed(state="completed"))
    (tmp_path / "mine.yaml").write_text(
        "format: 1\nrecipe: {data: {name: digits, train_size: 20, epoch_size: 384}, backbone: {weights: none}, epochs: 2}\n"
    )
    call("add", "mine", "mine.yaml", "label_smoothing.alpha=0.9")
    printed = " ".join(capsys.readouterr().out.split())
    assert "when the sweep continues: sweep resume mine" in printed
    assert "It lies outside the space" in printed
    record = SweepRecord.open(folder)
    assert (record.is_done, record.budget, record.state) == (False, 5, "completed")
    call("list")
    printed = " ".join(capsys.readouterr().out.split())
    assert "mine completed 4/5" in printed
    assert "mine: 1 trial waits. Train it with: sweep resume mine" in printed
    drive(folder).record(DriverStarted(pid=1, host="here", threads=1, slots=1, gpus=0))
    assert SweepRecord.open(folder).state == "interrupted", "a driver that was killed"
    added = run_all(drive(folder))[-1]
    assert (added.origin, added.recipe.epochs, added.params) == ("added", 2, None)


def test_a_recipe_is_added_once_also_before_its_trial_starts(folder, capsys):
    waits = "mine: this recipe was added already, and its trial waits"
    controller = drive(folder)
    run_all(controller)
    with folder.locked():  # the driver has not read the first request when the second one comes
        call("add", "mine", "optimizer.lr=0.0123")
        with pytest.raises(UserError, match=waits):
            call("add", "mine", "optimizer.lr=0.0123")
    Inbox(folder, controller, lambda: None).collect(at_once=True)
    with pytest.raises(UserError, match=waits):
        call("add", "mine", "optimizer.lr=0.0123")
    controller.resolve = lambda recipe: recipe.model_copy(update={"epochs": 2})  # as it replaces `auto`
    assert run_all(controller)[-1].name == "0004"
    with pytest.raises(UserError, match="mine: trial 0004 has this recipe already"):
        call("add", "mine", "optimizer.lr=0.0123")
    call("add", "mine", "optimizer.lr=0.0124")


def test_a_sweep_that_continues_counts_the_trials_that_are_done_and_those_that_were_interrupted(folder):
    controller = drive(folder)
    for number in range(2):
        trial = controller.next_trial()
        if number == 0:
            assert (
                describe_progress(SweepRecord.open(folder))
                == "Sweep mine continues: 0 of 4 trials done, 1 interrupted."
            )
            finish(controller, trial)
    controller.interrupt("the sweep was stopped")
    assert describe_progress(SweepRecord.open(folder)) == "Sweep mine continues: 1 of 4 trials done, 1 interrupted."
    run_all(drive(folder))
    assert describe_progress(SweepRecord.open(folder)) == "Sweep mine continues: 4 of 4 trials done."


def test_a_sweep_whose_time_was_spent_before_a_trial_completed_says_so(folder, capsys):
    controller = drive(folder)
    controller.next_trial()
    controller.interrupt("the time budget was spent")
    with pytest.raises(typer.Exit):
        conclude(Result(SweepRecord.open(folder), "time_budget", 0, make_console()))
    said = " ".join(capsys.readouterr().out.split())
    more = "sweep resume mine --time-budget 1h"
    assert said.endswith(f"The time budget was spent before a trial completed. Give more time: {more}")
    assert "The reasons are in" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "mine", "optimizer.lt=1"], "optimizer.lt"),
        (["add", "mine", "optimizer.lr=-1"], "optimizer.lr"),
        (["add", "mine", "none.yaml"], "none.yaml: there is no such"),
        (["add", "mine", "search.trials=3"], "search.trials=3: one recipe has no search"),
        (["add", "mine", "backbone.name=resnet19"], "backbone.name=resnet19.*resnet18"),
        (["add", "mine", "backbone={name: resnet18, weights: none.pth}"], "backbone.weights.*none.pth"),
        (["add", "mine", "data.name=cifar10"], "All trials of a sweep share its data, so data.name cannot be set here"),
        (["add", "mine", "epochs=3"], "trial 0000 has this recipe already"),
        (["add", "mine", "optimizer.lr={uniform: [0.1, 0.2]}"], "a recipe has values only"),
        (["stop", "mine", "--trial", "0000"], "--trial=0000: trial 0000 of mine has ended already: it is completed"),
        (["stop", "mine", "--trial", "99"], "99: mine has no such trial"),
        (["add", "replicated", "epochs=2"], "replicated is a replication with a fixed list of trials"),
    ],
)
def test_a_mistake_ends_in_one_sentence(folder, arguments, words):
    run_all(drive(folder))
    other = SweepFolder(folder.path.with_name("replicated"))
    create_folder(other, make_header("replicated", "2", SPACE, Settings()), Replication(trials=()))
    before = folder.ledger.read_bytes()
    with pytest.raises(UserError, match=words):
        call(*arguments)
    assert folder.ledger.read_bytes() == before
    assert not folder.requests.exists()


def test_a_recipe_file_is_completed_by_the_baseline_of_the_sweep(folder, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("format: 1\nrecipe:\n  label_smoothing: {alpha: 0.2}\n")
    call("add", "mine", "mine.yaml", "optimizer.lr=0.02")
    controller = drive(folder)
    (added,) = controller.added
    baseline = SPACE.baselines()[0]
    changed = {"label_smoothing", "optimizer"}
    assert {name for name in Recipe.model_fields if getattr(added.recipe, name) != getattr(baseline, name)} == changed
    assert (added.recipe.label_smoothing.alpha, added.recipe.optimizer.lr) == (0.2, 0.02)
    assert "ASHA" not in capsys.readouterr().out  # this sweep has no scheduler


def test_asha_stops_an_added_trial_unless_the_user_wants_it_in_full(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = load_space("quick", ["search.trials=30", "epochs=9", "search.scheduler.adapt=false"])
    folder = SweepFolder(tmp_path / "sweeps" / "raced")
    create_folder(folder, make_header("raced", "1", space, Settings()))
    call("add", "raced", "optimizer.lr=0.011")
    call("add", "raced", "optimizer.lr=0.012", "--full")
    assert capsys.readouterr().out.count("ASHA may stop it early; --full lets it run to its end.") == 1
    for number in range(2):  # the second time as a resume folds the ledger
        controller = Controller(space, Ledger(folder.ledger))
        while (trial := controller.next_trial()) is not None and trial.number < 20 + number:
            score = 0.1 if trial.origin == "added" else 0.5 + trial.number / 100
            for epoch in range(1, 10):
                if controller.report(trial.number, Report(epoch, {}, score, 0.01, epoch, [], 0.0)) == Decision.STOP:
                    break
        controller.take_over()
    states = {trial.recipe.optimizer.lr: trial.state for trial in controller.trials if trial.origin == "added"}
    assert states == {0.011: "stopped", 0.012: "completed"}
