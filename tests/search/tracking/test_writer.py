"""MLflow has the same content as the ledger, also after failures."""

import json
import logging
import socket
import threading
import uuid
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from analysis.reading import store as reading
from ledger.events import AnyEvent, SweepStarted
from ledger.settings import Settings
from search.tracking import mlflow_store
from search.tracking import writer as tracking
from search.tracking.run import ArtifactPlace, Run
from search.tracking.writer import Tracking
from tests.made_events import make_event
from tests.waiting import wait_until
from training.errors import UserError
from training.recipe import Recipe

EXPERIMENT = "technique-search"
START = 1_700_000_000.25


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.02)


@pytest.fixture
def sweep_id() -> str:
    return uuid.uuid4().hex


SPACE = "format: 1\nsearch: {trials: 3}\n"


def make_tracking(uri: str, sweep_id: str, *, patient: bool = False, dataset=None, **more) -> Tracking:
    made = Tracking(uri, EXPERIMENT, sweep="quick-1", sweep_id=sweep_id, metric="val_accuracy", **more)
    made(SweepStarted(name="quick-1", id=sweep_id, space=SPACE, settings=Settings(), dataset=dataset))
    made.start(patient)
    return made


def start(trial: int, **recipe) -> dict:
    values = Recipe(seed=trial, **recipe).model_dump()
    return {"event": "start", "trial": trial, "recipe": values, "params": None, "origin": "sampler"}


def report(trial: int, epoch: int) -> dict:
    accuracy = trial / 10 + epoch / 100
    return {
        "event": "report",
        "trial": trial,
        "epoch": epoch,
        "metrics": {"val_accuracy": accuracy, "train_loss": 1 / epoch},
        "score": accuracy,
        "standard_error": 0.02,
        "best_epoch": epoch,
        "steps": [[2 * epoch - 1, 0.1, 2.0], [2 * epoch, 0.05, 1.5]],
    }


def end(trial: int, state: str, reason: str = "") -> dict:
    return {"event": "end", "trial": trial, "state": state, "reason": reason}


def trial(number: int, state: str, epochs: int = 3, reason: str = "") -> list[dict]:
    reports = [report(number, epoch) for epoch in range(1, epochs + 1)]
    return [start(number), *reports, end(number, state, reason)]


def timed(*events: dict) -> list[AnyEvent]:
    """Return events as a ledger has them: with times, and after a round trip through JSON."""
    return [make_event({"time": START + second, **event}) for second, event in enumerate(events)]


def send(uri: str, sweep_id: str, events: list[dict], state: str = "completed", **more) -> Tracking:
    made = make_tracking(uri, sweep_id, **more)
    made.wait_ready()
    for event in events:
        made(event)
    assert made.close(state) == 0
    return made


def read_runs(uri: str, sweep_id: str) -> dict[str, object]:
    """The sweep's runs by name, as MLflow's own client finds them."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    found = client.search_runs([experiment.experiment_id], f"tags.sweep_id = '{sweep_id}'")
    assert len({run.info.run_name for run in found}) == len(found), "a run is there twice"
    return {run.info.run_name.rpartition("/")[2]: run for run in found}


def read_history(uri: str, run, key: str) -> list[tuple[int, float, int]]:
    from mlflow import MlflowClient

    history = MlflowClient(uri).get_metric_history(run.info.run_id, key)
    return [(metric.step, metric.value, metric.timestamp) for metric in history]


def read_artifact(run, name: str) -> Path:
    return Path(run.info.artifact_uri.removeprefix("file://")) / name


def test_a_sweep_is_a_run_with_a_run_below_it_for_each_trial(uri, sweep_id):
    sent = send(uri, sweep_id, timed(*trial(0, "completed"), *trial(1, "stopped", 1)))
    runs = read_runs(uri, sweep_id)
    assert set(runs) == {"quick-1", "0000", "0001"}
    assert runs["0001"].info.run_name == "quick-1/0001"
    assert sent.own_run.run == runs["quick-1"].info.run_id
    assert sent.run_ids == {0: runs["0000"].info.run_id, 1: runs["0001"].info.run_id}
    tags = runs["0001"].data.tags
    assert tags["mlflow.parentRunId"] == sent.own_run.run
    assert (tags["sweep"], tags["trial"], tags["origin"]) == ("quick-1", "0001", "sampler")
    assert runs["0000"].info.start_time == 1_700_000_000_250
    assert runs["0000"].info.end_time == 1_700_000_004_250


def test_parameters_are_the_recipe_flat_and_metrics_go_by_epochs_done(uri, sweep_id):
    send(uri, sweep_id, timed(*trial(3, "completed")))
    run = read_runs(uri, sweep_id)["0003"]
    assert run.data.params["optimizer.lr"] == str(Recipe().optimizer.lr)
    assert run.data.params["seed"] == "3"
    assert read_history(uri, run, "val_accuracy") == [
        (epoch, pytest.approx(0.3 + epoch / 100), 1_700_000_000_250 + 1000 * epoch) for epoch in (1, 2, 3)
    ]
    assert [step for step, _, _ in read_history(uri, run, "best_epoch")] == [1, 2, 3]
    assert [point[:2] for point in read_history(uri, run, "step_lr")] == [
        (s, 0.1 if s % 2 else 0.05) for s in range(1, 7)
    ]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("completed", "FINISHED"),
        ("stopped", "FINISHED"),
        ("diverged", "FINISHED"),
        ("out_of_memory", "FAILED"),
        ("failed", "FAILED"),
        ("interrupted", "KILLED"),
    ],
)
def test_every_end_of_a_trial_has_a_status_and_a_reason(uri, sweep_id, state, status):
    reason = "" if state == "completed" else "because"
    send(uri, sweep_id, timed(*trial(0, state, 1, reason)))
    run = read_runs(uri, sweep_id)["0000"]
    assert (run.info.status, run.data.tags["state"], run.data.tags.get("reason", "")) == (status, state, reason)


def test_no_run_is_running_after_the_sweep(uri, sweep_id):
    send(uri, sweep_id, timed(start(0), report(0, 1), *trial(1, "interrupted", 1)), state="interrupted")
    runs = read_runs(uri, sweep_id)
    assert {run.info.status for run in runs.values()} == {"KILLED"}
    assert runs["quick-1"].data.tags["state"] == "interrupted"


def test_replaying_the_ledger_changes_nothing(uri, sweep_id):
    events = timed(*trial(0, "completed"), *trial(1, "failed", 2, "no such file"), start(2), report(2, 1))
    send(uri, sweep_id, events[:4], state="interrupted")
    for _ in range(2):
        again = make_tracking(uri, sweep_id)
        again.replay(events)
        assert again.close("interrupted") == 0
    runs = read_runs(uri, sweep_id)
    assert set(runs) == {"quick-1", "0000", "0001", "0002"}
    for name, epochs in {"0000": 3, "0001": 2, "0002": 1}.items():
        assert [point[0] for point in read_history(uri, runs[name], "val_accuracy")] == list(range(1, epochs + 1))
        assert len(read_history(uri, runs[name], "step_train_loss")) == 2 * epochs
    assert runs["0000"].info.status == "FINISHED"
    assert runs["0000"].info.end_time == 1_700_000_004_250


def test_a_trial_of_a_lost_part_of_the_ledger_is_replaced(uri, sweep_id):
    known = timed(*trial(0, "completed"))
    send(uri, sweep_id, [*known, *timed(*trial(1, "completed"))], state="interrupted")
    # The machine was lost, and the copy of the ledger ends before the second trial: it is drawn again.
    other = [make_event({"time": START + 100 + second, **event}) for second, event in enumerate(trial(1, "stopped", 2))]
    send(uri, sweep_id, [*known, *other])
    runs = read_runs(uri, sweep_id)
    assert set(runs) == {"quick-1", "0000", "0001"}
    assert read_history(uri, runs["0001"], "val_accuracy")[0][2] == 1_700_000_101_250
    assert [point[0] for point in read_history(uri, runs["0001"], "val_accuracy")] == [1, 2]


def test_an_interrupted_trial_continues_in_the_same_run(uri, sweep_id):
    first = trial(0, "interrupted", 1, "Ctrl-C")
    send(uri, sweep_id, timed(*first), state="interrupted")
    before = read_runs(uri, sweep_id)["0000"].info
    assert before.status == "KILLED"
    more = timed(*first, {"event": "resume", "trial": 0}, report(0, 2), end(0, "completed"))
    again = make_tracking(uri, sweep_id)
    again.replay(more[:4])
    wait_until(lambda: read_runs(uri, sweep_id)["0000"].info.status == "RUNNING")
    for event in more[4:]:
        again(event)
    assert again.close("completed") == 0
    runs = read_runs(uri, sweep_id)
    assert runs["0000"].info.run_id == before.run_id
    assert [point[0] for point in read_history(uri, runs["0000"], "train_loss")] == [1, 2]
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs["0000"].data.tags["reason"] == ""


def test_artifacts_are_beside_the_database_and_those_of_the_sweep_alone(uri, sweep_id):
    from mlflow import MlflowClient

    send(uri, sweep_id, timed(*trial(0, "completed"), *trial(1, "completed"), start(2)))
    runs = read_runs(uri, sweep_id)
    parent = runs["quick-1"]
    space = read_artifact(parent, "space.yaml")
    assert space.is_relative_to(Path(uri.removeprefix("sqlite:///")).parent)
    assert space.read_text() == SPACE
    assert not MlflowClient(uri).list_artifacts(runs["0001"].info.run_id)  # a file a trial would take most of the time
    assert parent.data.params == {"search.trials": "3"}
    assert parent.data.metrics["best_val_accuracy"] == pytest.approx(0.13)
    assert parent.data.metrics["trials_completed"] == 2


def test_a_single_training_is_one_run_without_a_parent(uri, sweep_id):
    sent = send(uri, sweep_id, timed(*trial(0, "completed")), nested=False)
    runs = read_runs(uri, sweep_id)
    assert set(runs) == {"quick-1"}
    run = runs["quick-1"]
    assert sent.run_ids == {0: run.info.run_id}
    assert run.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in run.data.tags
    assert run.data.params["epochs"] == "10"


def test_a_sweep_without_a_trial_leaves_no_run(uri, sweep_id):
    made = make_tracking(uri, sweep_id)
    assert made.close("failed") == 0
    assert read_runs(uri, sweep_id) == {}


def test_a_sweep_that_never_begins_does_not_wait_for_the_store(uri, sweep_id, monkeypatch):
    may_open, open_store = threading.Event(), tracking.open_store
    monkeypatch.setattr(tracking, "open_store", lambda *given: may_open.wait() and open_store(*given))
    made = Tracking(uri, EXPERIMENT, sweep="quick-1", sweep_id=sweep_id, metric="val_accuracy")
    made.start()
    assert made.close("failed") == 0
    may_open.set()
    made.wait_ready()
    assert read_runs(uri, sweep_id) == {}


class Flaky:
    """MLflow's client with a connection that can fail before a request or before its answer."""

    def __init__(self, client) -> None:
        self.client = client
        self.cut = ""
        self.choke: str | None = None
        self.lose_answers = 0
        self.calls: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __getattr__(self, name):
        from mlflow.exceptions import MlflowException

        def call(*args, **kwargs):
            self.calls.append(name)
            self.may_answer.wait()
            if (self.cut and self.cut in name) or (self.choke and self.choke in args):
                raise MlflowException("API request failed: connection refused")
            result = getattr(self.client, name)(*args, **kwargs)
            if self.lose_answers and name != "search_runs":
                self.lose_answers -= 1
                raise MlflowException("API request failed: read timed out")
            return result

        return call


@pytest.fixture
def line(monkeypatch):
    """Lets the connection of every Tracking in a test fail."""
    from mlflow import MlflowClient

    flaky = Flaky(None)

    def open_store(uri, experiment):
        flaky.client = MlflowClient(uri)
        store = mlflow_store.open_store(uri, experiment)
        return replace(store, client=flaky)

    monkeypatch.setattr(tracking, "open_store", open_store)
    monkeypatch.setattr(tracking, "LONGEST_WAIT_SECONDS", 0.1)
    return flaky


def test_events_of_an_outage_arrive_afterwards_in_order_and_once(uri, sweep_id, line, caplog):
    events = timed(*trial(0, "completed"), *trial(1, "stopped", 2), start(2), report(2, 1))
    made = make_tracking(uri, sweep_id)
    made.wait_ready()
    for event in events[:3]:
        made(event)
    wait_until(lambda: "log_batch" in line.calls)
    line.cut = "_"
    with caplog.at_level(logging.WARNING, logger="search"):
        line.may_answer.clear()
        for event in events[3:]:
            made(event)  # it must not wait for an answer, or this test would not end
        line.may_answer.set()
        wait_until(lambda: "does not answer" in caplog.text)
        seen = len(line.calls)
        wait_until(lambda: len(line.calls) > seen + 5)
        line.cut = ""
        assert made.close("completed") == 0
    assert caplog.text.count("does not answer") == 1
    assert caplog.text.count("answers again") == 1
    runs = read_runs(uri, sweep_id)
    for name, epochs in {"0000": 3, "0001": 2, "0002": 1}.items():
        assert [point[0] for point in read_history(uri, runs[name], "val_accuracy")] == list(range(1, epochs + 1))
    assert [runs[name].info.status for name in ("0000", "0001", "0002")] == ["FINISHED", "FINISHED", "KILLED"]


def test_a_resumed_sweep_waits_for_a_server_that_does_not_answer_and_a_new_one_does_not(
    uri, sweep_id, monkeypatch, caplog
):
    events, opened, away = timed(*trial(0, "completed")), mlflow_store.open_store, threading.Event()
    away.set()

    def open_store(uri, experiment):
        if away.is_set():
            raise reading.ServerAway("the MLflow server does not answer")
        return opened(uri, experiment)

    monkeypatch.setattr(tracking, "open_store", open_store)
    monkeypatch.setattr(tracking, "LONGEST_WAIT_SECONDS", 0.1)
    with pytest.raises(UserError, match="does not answer"):
        make_tracking(uri, sweep_id).wait_ready()
    with caplog.at_level(logging.WARNING, logger="search"):
        made = make_tracking(uri, sweep_id, patient=True)
        made.wait_ready()
        made.replay(events)
        wait_until(lambda: "does not answer; the training continues" in caplog.text)
        away.clear()
        assert made.close("completed") == 0
    assert [point[0] for point in read_history(uri, read_runs(uri, sweep_id)["0000"], "val_accuracy")] == [1, 2, 3]


def test_lost_answers_duplicate_nothing(uri, sweep_id, line):
    line.lose_answers = 12
    send(uri, sweep_id, timed(*trial(0, "completed"), *trial(1, "stopped", 2)))
    assert line.lose_answers == 0
    runs = read_runs(uri, sweep_id)
    assert set(runs) == {"quick-1", "0000", "0001"}
    assert [point[0] for point in read_history(uri, runs["0001"], "step_lr")] == [1, 2, 3, 4]


def test_a_close_during_an_outage_is_bounded_and_counts_what_is_left(uri, sweep_id, line):
    events = timed(*trial(0, "completed"), *trial(1, "stopped", 2))
    made = make_tracking(uri, sweep_id)
    made.wait_ready()
    line.cut = "_"
    for event in events:
        made(event)
    assert made.close("completed", timeout_seconds=1) == len(events) + 1
    line.cut = ""
    again = make_tracking(uri, sweep_id)
    again.replay(events)
    assert again.close("completed") == 0
    assert {run.info.status for run in read_runs(uri, sweep_id).values()} == {"FINISHED"}


def test_a_trial_that_the_server_cannot_store_does_not_delay_the_others(uri, sweep_id, line):
    made = make_tracking(uri, sweep_id)
    made.wait_ready()
    made(timed(start(0))[0])
    wait_until(lambda: 0 in made.run_ids)
    line.choke = made.run_ids[0]
    for event in timed(report(0, 1), *trial(1, "completed")):
        made(event)
    wait_until(
        lambda: read_runs(uri, sweep_id).get("0001") and read_runs(uri, sweep_id)["0001"].info.status == "FINISHED"
    )
    line.choke = None
    assert made.close("completed") == 0
    assert "val_accuracy" in read_runs(uri, sweep_id)["0000"].data.metrics


def test_refused_entries_are_logged_with_their_trial_and_the_rest_arrives(uri, sweep_id, caplog):
    events = timed(*trial(0, "completed", 1), *trial(1, "completed", 1))
    events[1].metrics["no [brackets] allowed"] = 1.0
    sent = send(uri, sweep_id, events)
    assert sent.refused == 1
    assert "refused metrics of trial quick-1/0000" in caplog.text
    runs = read_runs(uri, sweep_id)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert "optimizer.lr" in runs["0000"].data.params
    assert "val_accuracy" in runs["0001"].data.metrics


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_run_that_somebody_deletes_while_it_trains_is_said_once_and_the_rest_arrives(
    uri, sweep_id, caplog, is_emptied
):
    from mlflow import MlflowClient

    made = make_tracking(uri, sweep_id)
    made.wait_ready()
    first = timed(start(0), report(0, 1), start(1), report(1, 1))
    made.replay(first)
    wait_until(lambda: {0, 1} <= set(made.run_ids) and "train_loss" in read_runs(uri, sweep_id)["0001"].data.metrics)
    MlflowClient(uri).delete_run(made.run_ids[0])
    if is_emptied:  # as `mlflow gc` does
        MlflowClient(uri)._tracking_client.store._hard_delete_run(made.run_ids[0])
    for event in timed(*(report(number, epoch) for epoch in (2, 3) for number in (0, 1))):
        made(event)
        wait_until(lambda: not made.backlog)
    for event in timed(end(0, "completed"), end(1, "completed")):
        made(event)
    assert made.close("completed") == 0
    said = [record.getMessage() for record in caplog.records]
    assert said == ["The run of quick-1/0000 was deleted in MLflow: it gets nothing more."]
    runs = read_runs(uri, sweep_id)
    assert sorted(point[0] for point in read_history(uri, runs["0001"], "train_loss")) == [1, 2, 3]
    assert {run.info.status for run in runs.values()} == {"FINISHED"}


def test_a_run_that_is_gone_takes_no_file_and_the_others_do(uri, tmp_path, caplog):
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.create_experiment("files", (tmp_path / "mlruns").as_uri())
    place = ArtifactPlace()
    gone, there = (
        Run(client, client.create_run(experiment).info.run_id, name, artifacts=place) for name in ("gone", "there")
    )
    client.delete_run(gone.id)
    client._tracking_client.store._hard_delete_run(gone.id)
    for run in (gone, gone, there):
        run.log_text("space.yaml", "format: 1")
    assert [record.getMessage() for record in caplog.records] == [
        "The run of gone was deleted in MLflow: it gets nothing more."
    ]
    assert [file.path for file in client.list_artifacts(there.id)] == ["space.yaml"]


def test_a_database_that_is_removed_is_said_once_and_without_a_traceback(sweep_id, tmp_path, caplog, capfd):
    uri, events = f"sqlite:///{tmp_path}/mlflow.db", timed(*trial(0, "completed"))
    made = make_tracking(uri, sweep_id)
    made.wait_ready()
    made.replay(events[:2])
    wait_until(lambda: 0 in made.run_ids and "train_loss" in read_runs(uri, sweep_id)["0000"].data.metrics)
    (tmp_path / "mlflow.db").unlink()
    made.replay(events[2:])
    wait_until(lambda: "does not answer" in caplog.text)
    assert made.close("completed", timeout_seconds=0.5) > 0
    assert caplog.text.count("(its file is gone)") == 1
    assert "Traceback" not in "".join(capfd.readouterr())


def test_trials_whose_sweeps_run_was_deleted_are_below_the_new_one(uri, sweep_id):
    from mlflow import MlflowClient

    events = timed(*trial(0, "completed", 1))
    lost = send(uri, sweep_id, events, state="interrupted").own_run.run
    MlflowClient(uri).delete_run(lost)
    again = send(uri, sweep_id, [*events, *timed(*trial(1, "completed", 1))]).own_run.run
    assert again != lost
    runs = read_runs(uri, sweep_id)
    assert {runs[name].data.tags["mlflow.parentRunId"] for name in ("0000", "0001")} == {again}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("http://127.0.0.1:9", "127.0.0.1:9: the MLflow server does not answer .connection refused"),
        ("http://me:secret@127.0.0.1:9", r"MLflow store http://me:\*\*\*@127.0.0.1:9:"),
        ("sqlite:////proc/nowhere/mlflow.db", "--tracking-uri sqlite:////proc/nowhere/mlflow.db"),
        ("nonsense://here", "nonsense"),
    ],
)
def test_a_store_that_cannot_be_opened_gives_one_sentence_quickly(bad, words):
    made = make_tracking(bad, "x")
    with pytest.raises(UserError, match=words) as caught:
        made.wait_ready()
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_never_answers_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(reading, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = make_tracking(f"http://127.0.0.1:{silent.getsockname()[1]}", "x")
        with pytest.raises(UserError, match="no answer within"):
            made.wait_ready()


def test_a_proxy_without_a_server_behind_it_does_not_count_as_an_answer():
    class BadGateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(502)

        def log_message(self, *args) -> None: ...

    with HTTPServer(("127.0.0.1", 0), BadGateway) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        made = make_tracking(f"http://127.0.0.1:{server.server_port}", "x")
        with pytest.raises(UserError, match="HTTP status 502"):
            made.wait_ready()


def test_a_relative_database_does_not_depend_on_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        Tracking("sqlite:///mlflow.db", "x", sweep="", sweep_id="", metric="").uri == f"sqlite:///{tmp_path}/mlflow.db"
    )
    assert reading.make_absolute("sqlite:////a/b.db?mode=ro") == "sqlite:////a/b.db?mode=ro"
    assert reading.make_absolute("http://host/x") == "http://host/x"


def test_every_run_has_the_data_that_it_was_trained_on(uri, sweep_id):
    dataset = {"name": "digits", "digest": "0a1b", "source": "digits", "classes": 10, "train_images": 64}
    events = timed(*trial(0, "completed"), *trial(1, "stopped", 1))
    send(uri, sweep_id, events, dataset=dataset)
    again = make_tracking(uri, sweep_id, dataset=dataset)
    again.wait_ready()
    again.replay(events)
    assert again.close("completed") == 0
    for run in read_runs(uri, sweep_id).values():
        (logged,) = run.inputs.dataset_inputs
        assert (logged.dataset.name, logged.dataset.digest) == ("digits", "0a1b")
        assert json.loads(logged.dataset.profile) == {"classes": 10, "train_images": 64}


def test_results_after_the_trials_are_logged_to_the_sweeps_own_run(uri, sweep_id, tmp_path, monkeypatch):
    from ledger.file import Ledger
    from ledger.folder import SweepFolder
    from ledger.record import SweepRecord
    from ledger.settings import Settings
    from search.tracking.own_run import log_results

    sent = send(uri, sweep_id, timed(*trial(0, "completed")))
    folder = SweepFolder(tmp_path / "quick-1")
    folder.path.mkdir()
    Ledger(folder.ledger).append(SweepStarted(id=sweep_id, settings=Settings(uri, EXPERIMENT)))
    (folder.path / "confirm.html").write_text("page")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "birds")  # of the user's next sweep, not of this one
    for _ in range(2):  # doing it again changes nothing
        log_results(
            SweepRecord.open(folder), {"test_accuracy": 0.9}, [folder.path / "confirm.html"], ["90.0 %"], START, print
        )
    run = read_runs(uri, sweep_id)["quick-1"]
    assert run.info.run_id == sent.own_run.run
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.note.content"] == "90.0 %"
    assert read_history(uri, run, "test_accuracy") == [(0, 0.9, round(START * 1000))]
    assert read_artifact(run, "confirm.html").read_text() == "page"


REFUSALS = {
    "another user's folder": PermissionError(13, "Permission denied", "/srv/mlruns"),
    "a disk that is read only": OSError(30, "Read-only file system", "/srv/mlruns"),
    "a file in its place": FileExistsError(17, "File exists", "/srv/mlruns"),
    "below a file": NotADirectoryError(20, "Not a directory", "/srv/mlruns"),
    "a full disk": OSError(28, "No space left on device"),
    "a store that needs another package": ModuleNotFoundError("No module named 'boto3'"),
    "no credentials": ValueError("Unable to locate credentials"),
    "a fault without a message": AssertionError(),
    "a connection that is cut for this alone": ConnectionError("cut"),
    "a server that cannot write them": "INTERNAL_ERROR",
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_without_a_place_for_artifacts_parameters_and_metrics_arrive(refusal, uri, sweep_id, line, caplog, tmp_path):
    from mlflow.exceptions import MlflowException

    error, tries = REFUSALS[refusal], []

    def refuse(*_):
        tries.append(1)
        raise MlflowException("500") if isinstance(error, str) else error

    line.log_text = line.log_artifact = refuse
    (tmp_path / "ledger.jsonl").write_text("{}")
    sent = send(
        uri, sweep_id, timed(*trial(0, "completed", 1), *trial(1, "failed", 1)), ledger=tmp_path / "ledger.jsonl"
    )
    runs = read_runs(uri, sweep_id)
    found = {
        name: (run.info.status, run.data.params.get("epochs"), "val_accuracy" in run.data.metrics)
        for name, run in runs.items()
        if name != "quick-1"
    }
    assert found == {"0000": ("FINISHED", "10", True), "0001": ("FAILED", "10", True)}
    (sentence,) = (record.message for record in caplog.records if record.levelno == logging.ERROR)
    assert "MLflow does not take space.yaml of quick-1, nor any other file: its artifacts are in file:///" in sentence
    assert "Start its server with --serve-artifacts" in sentence
    assert "does not answer" not in caplog.text or refusal[:2] == "a "
    assert (sent.refused, len(tries) <= 3) == (1, True)


def test_without_a_folder_for_temporary_files_everything_else_arrives_and_no_run_stays_open(
    uri, sweep_id, tmp_path, monkeypatch, caplog
):
    made = make_tracking(uri, sweep_id, ledger=tmp_path / "ledger.jsonl")
    made.wait_ready()
    (tmp_path / "ledger.jsonl").write_text("{}")
    events = timed(*trial(0, "completed"))
    made.replay(events[:2])
    wait_until(lambda: made.run_ids)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    made.replay(events[2:])
    assert made.close("completed") == 0
    assert "does not answer" not in caplog.text
    assert caplog.text.count("nor any other file") == 1
    runs = read_runs(uri, sweep_id)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert [point[0] for point in read_history(uri, runs["0000"], "train_loss")] == [1, 2, 3]


def test_a_folder_of_artifacts_that_cannot_be_made_is_said_once(sweep_id, tmp_path, caplog):
    (tmp_path / "mlruns").write_text("a file")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert send(uri, sweep_id, timed(*trial(0, "completed", 1))).refused == 1
    assert caplog.text.count("MLflow does not take space.yaml") == 1
    assert "val_accuracy" in read_runs(uri, sweep_id)["0000"].data.metrics


def test_a_real_server_whose_artifacts_cannot_be_written_here_gets_everything_else(
    serve_mlflow, sweep_id, tmp_path, caplog, capsys, monkeypatch
):
    from ledger.file import Ledger
    from ledger.folder import SweepFolder
    from ledger.record import SweepRecord
    from ledger.settings import Settings
    from search.tracking.own_run import log_results, publish_export

    (tmp_path / "artifacts").write_text("a file, so that not even root can write below it")
    server = f"http://127.0.0.1:{serve_mlflow(f'sqlite:///{tmp_path}/server.db')}"
    folder = SweepFolder(tmp_path / "quick-1")
    folder.path.mkdir()
    Ledger(folder.ledger).append(SweepStarted(id=sweep_id, settings=Settings(server, EXPERIMENT)))
    sent = send(server, sweep_id, timed(*trial(0, "completed", 1)), ledger=folder.ledger)
    assert sent.refused == 1
    assert caplog.text.count("MLflow does not take space.yaml") == 1
    run = read_runs(server, sweep_id)["0000"]
    assert (run.info.status, run.data.params["epochs"], "val_accuracy" in run.data.metrics) == ("FINISHED", "10", True)
    record, page = SweepRecord.open(folder), folder.path / "confirm.html"
    page.write_text("page")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)  # the user has named it; the server here has set its own
    log_results(record, {"test_accuracy": 0.9}, [page], ["90.0 %"], START, print)
    said = "".join(capsys.readouterr().out.split())  # a long path is broken over lines
    assert f"!MLflowtakesnofiles:itsartifactsarein{tmp_path}/artifacts/" in said
    assert "Everythingelsehasarrived.Startitsserverwith--serve-artifacts" in said
    assert read_runs(server, sweep_id)["quick-1"].data.metrics["test_accuracy"] == 0.9
    with pytest.raises(UserError, match=r"MLflow takes no files: .*Start its server with --serve-artifacts"):
        publish_export(record, folder.path)


def test_the_page_of_a_running_sweep_is_an_artifact_of_its_run_and_renewed(uri, sweep_id, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "PUBLISH_SECONDS", 0.0)
    page, ledger = tmp_path / "reports" / "mine.html", tmp_path / "ledger.jsonl"
    page.parent.mkdir()
    ledger.write_text("")
    made = make_tracking(uri, sweep_id, ledger=ledger, page=page)
    made.wait_ready()
    made.replay(timed(start(0), report(0, 1)))
    for text in ("first", "second"):
        page.write_text(text)
        wait_until(lambda text=text: has_page(uri, sweep_id, text))
    made.close("completed")
    assert read_artifact(read_runs(uri, sweep_id)["quick-1"], "report.html").read_text() == "second"


def has_page(uri, sweep_id, text):
    run = read_runs(uri, sweep_id).get("quick-1")
    file = run and read_artifact(run, "report.html")
    return file and file.is_file() and file.read_text() == text
