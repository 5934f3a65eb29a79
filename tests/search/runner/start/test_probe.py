"""The probe runs once per sweep, beside the trials; its failure ends nothing."""

import os
import time
from types import SimpleNamespace

import pytest
import ray

from ledger.events import FeaturesProbed, Replication, ReplicationTrial
from ledger.file import Ledger, read_events
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.core.controller import Controller
from search.runner.start import probe as module
from search.runner.start.probe import Probe, find_probed, run_probe
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from tests.real_sweeps import FAST, SPACE, call, mlflow_runs
from training.loop.epoch_report import Report
from training.recipe import Recipe

FOUND = {
    "backbone": "test_resnet",
    "linear": {"val_accuracy": 0.9},
    "linear_standard_error": 0.01,
    "knn": {"val_accuracy": 0.8},
    "train_images": 200,
    "val_images": 350,
    "seconds": 2.0,
}


@pytest.fixture
def task(monkeypatch):
    """A Ray task that is not ready until it has a result."""
    state = SimpleNamespace(result=None, starts=[], cancelled=False)

    def begin(recipe, metric):
        state.starts.append((recipe, metric))
        return "task"

    monkeypatch.setattr(module, "_start", begin)
    monkeypatch.setattr(
        ray, "wait", lambda tasks, timeout: (time.sleep(timeout), (tasks if state.result else [], []))[1]
    )
    monkeypatch.setattr(ray, "get", lambda _: state.result)
    monkeypatch.setattr(ray, "cancel", lambda *_, **__: setattr(state, "cancelled", True))
    return state


@pytest.fixture
def controller(tmp_path):
    folder, space = SweepFolder(tmp_path / "mine"), load_space("quick")
    create_folder(folder, make_header("mine", "1", space, Settings()))
    return Controller(space, Ledger(folder.ledger, SweepRecord.open(folder).events))


def watch(controller) -> Probe:
    probe = Probe(controller)
    controller.subscribe(probe)
    return probe


def report_once(controller):
    controller.next_trial()
    controller.report(0, Report(1, {}, 0.5, 0.1, 1, [], 0.0))


def test_it_starts_after_the_first_report_and_its_result_is_in_the_ledger(controller, task):
    probe = watch(controller)
    controller.next_trial()
    assert not task.starts
    controller.report(0, Report(1, {}, 0.5, 0.1, 1, [], 0.0))
    assert [(recipe.backbone.weights, metric) for recipe, metric in task.starts] == [("letters", "val_accuracy")]
    probe.collect()
    assert controller.trials.probe is None
    task.result = FOUND
    probe.collect()
    assert controller.ledger.events[-1].linear == {"val_accuracy": 0.9}
    assert controller.trials.probe.seconds == 2


def test_a_resumed_sweep_that_has_a_result_does_not_probe_again(controller, task):
    controller.record(FeaturesProbed(**FOUND))
    watch(controller)
    report_once(controller)
    assert not task.starts


def test_a_replication_has_no_probe(controller, task):
    controller.record(Replication(trials=(ReplicationTrial(label="0", recipe=Recipe(), origin="listed"),)))
    watch(controller)
    report_once(controller)
    assert not task.starts


def test_a_failed_probe_is_one_line_and_the_sweep_goes_on(controller, task, caplog):
    probe = watch(controller)
    report_once(controller)
    task.result = {"problem": "no weights."}
    probe.collect()
    assert caplog.messages == ["The linear probe on frozen features failed: no weights."]
    assert controller.trials.probe is None
    probe.close(lambda: True)
    assert not task.cancelled


def test_the_end_of_a_sweep_waits_for_the_probe_only_while_it_may(controller, task, monkeypatch, caplog):
    monkeypatch.setattr(module, "LAST_WAIT_SECONDS", 600.0)  # longer than the time limit of a test
    probe = watch(controller)
    report_once(controller)
    probe.close(lambda: False)
    assert task.cancelled
    assert not caplog.messages
    task.cancelled = False
    monkeypatch.setattr(module, "LAST_WAIT_SECONDS", 0.5)
    probe.close(lambda: True)
    assert task.cancelled
    assert caplog.messages == ["The linear probe on frozen features was ended: it took too long after the last trial."]
    task.result = FOUND
    probe.close(lambda: True)
    assert controller.trials.probe is not None


def test_the_baseline_is_probed_if_its_backbone_has_weights():
    assert find_probed(load_space("quick", ["backbone.weights=none"])) is None
    assert find_probed(load_space("quick")) == load_space("quick").baselines()[0]


def test_the_worker_returns_the_fields_of_the_event_or_the_problem(monkeypatch):
    monkeypatch.setattr(os, "nice", lambda _: 0)
    recipe = load_space("quick").baselines()[0]
    event = FeaturesProbed(**run_probe(recipe.model_dump(), "val_accuracy"))
    assert event.linear["val_accuracy"] > 0.7  # 82 % when it was written, with two images of each digit
    assert event.train_images == 20
    missing = recipe.model_dump() | {"backbone": {"source": "timm", "name": "test_resnet", "weights": "no-such-file"}}
    assert "no-such-file" in run_probe(missing, "val_accuracy")["problem"]


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (0.95, None),
        (0.9, "Fine-tuning does not beat the linear probe: the best trial, 0000, is no better."),
        (0.88, "Fine-tuning does not beat the linear probe: the best trial, 0000, is 2.0 points behind it."),
    ],
)
def test_the_finding_has_the_probe_and_says_whether_fine_tuning_beats_it(controller, score, words):
    from search.display.tables.leaderboard import describe_frozen

    controller.record(FeaturesProbed(**FOUND))
    controller.next_trial()
    controller.report(0, Report(1, {}, score, 0.1, 1, [], 0.0))
    controller.end(0, "completed")
    reached = "A linear probe on frozen features reaches 90.0 ± 1.0 % (nearest neighbours: 80.0 %)."
    assert describe_frozen(controller.trials) == [reached, *([words] if words else [])]


@pytest.mark.slow
@pytest.mark.timeout(600)  # the probe has a low priority, so it takes long beside other tests
def test_a_real_sweep_has_the_probe_in_its_ledger_in_mlflow_and_at_its_end(tmp_path):
    (tmp_path / "mine.yaml").write_text(SPACE.replace("weights: none", "weights: letters"))
    printed = call(tmp_path, "run", "mine.yaml", "--name", "mine", "search.trials=3", command=FAST)
    events = list(read_events(tmp_path / "sweeps" / "mine" / "ledger.jsonl"))
    (found,) = [event for event in events if isinstance(event, FeaturesProbed)]
    assert found.train_images == 60
    assert printed.count("A linear probe on frozen features reaches") == 1  # when it has come; then `show` has it
    _, runs = mlflow_runs(tmp_path, "mine")
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert parent.data.metrics["probe_val_accuracy"] == found.linear["val_accuracy"]
