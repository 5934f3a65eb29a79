"""A sweep is read, listed and stopped through its MLflow store alone."""

import os
import socket
import time
import uuid
from pathlib import Path

import pytest

from analysis.reading.remote import fetch_record, list_sweeps
from analysis.reading.store import ServerAway
from ledger.events import SweepStarted, decode, encode
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.tracking import own_run
from search.tracking import writer as tracking
from search.tracking.sweep_runs import PARENT, SweepRuns
from search.tracking.writer import Tracking
from tests.made_events import make_event
from tests.waiting import wait_until
from training.errors import UserError
from training.recipe import Recipe

EXPERIMENT = "technique-search"
SPACE = "format: 1\nrecipe: {optimizer: {name: momentum, lr: {log_uniform: [0.01, 0.1]}}}\nsearch: {trials: 3}\n"


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    for name in ("FLUSH_SECONDS", "PUBLISH_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(tracking, name, 0.02)


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


class Running:
    """A sweep with one trial whose driver writes its ledger and logs to MLflow."""

    def __init__(self, uri: str, home: Path, name: str, **settings) -> None:
        self.folder = SweepFolder(home / name)
        self.folder.path.mkdir(parents=True)
        self.ledger = Ledger(self.folder.ledger)
        sweep_id = uuid.uuid4().hex
        stored = Settings(uri, **settings)
        self.tracking = Tracking(
            uri, stored.experiment, sweep=name, sweep_id=sweep_id, metric="val_accuracy", ledger=self.folder.ledger
        )
        self.record(SweepStarted(name=name, id=sweep_id, space=SPACE, settings=stored))
        self.tracking.start()
        self.tracking.wait_ready()
        self.record(event="start", trial=0, recipe=Recipe().model_dump(), params=None, origin="baseline")

    def record(self, event=None, **values) -> None:
        if not isinstance(event, SweepStarted):
            event = make_event({"event": event, **values})
        self.tracking(self.ledger.append(event))

    def report(self, epoch: int, score: float) -> None:
        self.record(event="report", trial=0, epoch=epoch, score=score, standard_error=0.02, best_epoch=epoch)

    def end(self, state="completed") -> None:
        self.record(event="end", trial=0, state=state)
        assert self.tracking.close(state) == 0


def test_a_running_sweep_is_read_from_the_ledger_that_its_driver_copies(uri, tmp_path):
    sweep = Running(uri, tmp_path, "alpha", owner="ada", tags={"team": "vision"})
    sweep.report(1, 0.5)

    def seen() -> SweepRecord | None:
        try:
            return fetch_record(uri, "alpha")
        except UserError as error:
            assert "cannot be read" in str(error) or "no such sweep" in str(error)  # noqa: PT017 - both are right here
            return None

    wait_until(lambda: (found := seen()) is not None and len(found.trials) and found.trials.by_number[0].epoch == 1)
    record = fetch_record(uri, "alpha")
    assert (record.state, record.budget) == ("running", 3)
    [listed] = list_sweeps(uri, {"owner": "ada", "team": "vision"})
    assert (listed.name, listed.state, listed.owner, listed.tags) == ("alpha", "running", "ada", {"team": "vision"})
    sweep.report(2, 0.75)
    sweep.end()
    record = fetch_record(uri, "alpha")
    assert record.state != "running"
    assert record.trials.best().score == 0.75
    assert record.events == sweep.ledger.events
    [listed] = list_sweeps(uri, {"owner": "ada"})
    assert (listed.state, listed.run.data.metrics["best_val_accuracy"]) == ("completed", 0.75)


def test_sweeps_are_listed_by_owner_and_tag_and_trials_are_not(uri, tmp_path):
    for name, owner, tags in (("beta", "ben", {"team": "speech"}), ("gamma", "ben", {}), ("delta", "dan", {})):
        Running(uri, tmp_path, name, owner=owner, tags=tags).end()
    names = [sweep.name for sweep in list_sweeps(uri, {"owner": "ben"})]
    assert names == ["gamma", "beta"], "the latest is first"
    assert [sweep.name for sweep in list_sweeps(uri, {"team": "speech"})] == ["beta"]
    assert not list_sweeps(uri, {"owner": "ben", "team": "vision"})
    assert {"beta", "gamma", "delta"} <= {sweep.name for sweep in list_sweeps(uri)}


def test_a_request_to_stop_reaches_the_driver_and_a_later_driver_does_not_see_it(uri, tmp_path):
    sweep = Running(uri, tmp_path, "epsilon")
    wait_until(lambda: any(found.name == "epsilon" for found in list_sweeps(uri)))
    assert not sweep.tracking.stop_requested
    own_run.request_stop(uri, "epsilon")
    wait_until(lambda: sweep.tracking.stop_requested)
    sweep.end("interrupted")
    with pytest.raises(UserError, match="epsilon is not running: its state in .* is interrupted"):
        own_run.request_stop(uri, "epsilon")
    events = sweep.ledger.events
    again = Tracking(
        uri,
        EXPERIMENT,
        sweep="epsilon",
        sweep_id=events[0].id,
        metric="val_accuracy",
        ledger=sweep.folder.ledger,
    )
    again.start()
    again.wait_ready()
    again.replay(events)
    wait_until(lambda: fetch_record(uri, "epsilon").state == "running")
    time.sleep(0.2)
    assert not again.stop_requested
    again.close("completed")


def test_a_request_to_stop_in_the_first_moment_of_a_sweep_is_not_lost(uri, tmp_path, monkeypatch):
    create = SweepRuns._create

    def create_and_stop(self, key, *arguments):
        run = create(self, key, *arguments)
        if key == PARENT:
            own_run.request_stop(uri, "first-moment")
        return run

    monkeypatch.setattr(SweepRuns, "_create", create_and_stop)
    sweep = Running(uri, tmp_path, "first-moment")
    wait_until(lambda: sweep.tracking.stop_requested, seconds=10)
    sweep.end("interrupted")


def test_an_export_comes_back_from_the_store(uri, tmp_path):
    sweep = Running(uri, tmp_path, "zeta")
    with pytest.raises(UserError, match=r"zeta: .* has no export|zeta: no such sweep"):
        own_run.fetch_export(uri, "zeta", tmp_path / "none")
    sweep.end()
    made = tmp_path / "exports"
    made.mkdir()
    (made / "recipe.yaml").write_text("epochs: 3\n")
    own_run.publish_export(SweepRecord.open(sweep.folder), made)
    own_run.fetch_export(uri, "zeta", tmp_path / "copy")
    assert (tmp_path / "copy" / "recipe.yaml").read_text() == "epochs: 3\n"
    assert not (tmp_path / "none").exists()


DAMAGES = {
    "deleted": (lambda path: path.unlink(), ""),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "not a regular file"),
    "a named pipe": (lambda path: (path.unlink(), os.mkfifo(path)), ""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_artifacts_that_are_gone_are_refused_in_a_sentence(uri, tmp_path, damage):
    damage, reason = DAMAGES[damage]
    Running(uri, tmp_path, "zeta").end()
    [sweep, *_] = list_sweeps(uri)
    folder = Path(sweep.run.info.artifact_uri.removeprefix("file://"))
    for name in ("ledger.jsonl.gz", "space.yaml"):
        damage(folder / name)
    with pytest.raises(
        UserError, match=rf"the artifact ledger.jsonl.gz of the sweep's run cannot be read \(.*{reason}"
    ):
        fetch_record(uri, "zeta")


def test_a_run_whose_ledger_was_deleted_is_read_by_its_metrics(uri, tmp_path):
    sweep = Running(uri, tmp_path, "nu")
    sweep.report(1, 0.5)
    sweep.end()
    before = fetch_record(uri, "nu")
    [found, *_] = list_sweeps(uri)
    Path(found.run.info.artifact_uri.removeprefix("file://"), "ledger.jsonl.gz").unlink()
    again = fetch_record(uri, "nu")
    assert again.trials.best().score == before.trials.best().score == 0.5


def test_a_ledger_with_an_incomplete_last_line_is_read(uri, tmp_path):
    sweep = Running(uri, tmp_path, "eta")
    with sweep.folder.ledger.open("ab") as file:
        file.write(encode(sweep.ledger.events[-1])[:20])
    assert sweep.tracking.close("interrupted") == 0
    assert len(fetch_record(uri, "eta").trials) == 1


@pytest.mark.parametrize("act", [fetch_record, own_run.request_stop])
def test_a_wrong_name_or_store_ends_in_one_sentence(act, uri, tmp_path):
    Running(uri, tmp_path, "theta").end()
    with pytest.raises(UserError, match=r"iota: no such sweep in sqlite.*There are: theta"):
        act(uri, "iota")
    with pytest.raises(UserError, match="no such database"):
        act(f"sqlite:///{tmp_path}/none.db", "theta")
    assert not (tmp_path / "none.db").exists()


def test_all_experiments_are_read_or_the_one_that_mlflows_variable_names(uri, tmp_path, monkeypatch):
    Running(uri, tmp_path, "upsilon", experiment="birds").end()
    assert fetch_record(uri, "upsilon").name == "upsilon"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    assert "upsilon" not in {sweep.name for sweep in list_sweeps(uri)}
    with pytest.raises(UserError, match="upsilon: no such sweep"):
        fetch_record(uri, "upsilon")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "whales")
    with pytest.raises(UserError, match="There are none in the experiment whales"):
        fetch_record(uri, "upsilon")


def test_the_commands_read_the_store(uri, tmp_path, capsys, monkeypatch):
    from search.cli.main import app

    monkeypatch.setenv("COLUMNS", "120")
    sweep = Running(uri, tmp_path, "kappa", owner="kim", tags={"team": "vision"})
    sweep.report(1, 0.5)
    sweep.end()
    app(["list", "--from", uri, "--tag", "owner=kim", "--tag", "team=vision"], standalone_mode=False)
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["name", "state"]
    assert row.split()[:5] == ["kappa", "completed", "1", "50.0", "%"]
    assert row.split()[-2:] == ["kim", "team=vision"]
    app(["show", "kappa", "--from", uri], standalone_mode=False)
    assert "50.0 ± 2.0 %" in capsys.readouterr().out
    with pytest.raises(UserError, match="kappa is not running"):
        app(["stop", "kappa", "--from", uri], standalone_mode=False)
    with pytest.raises(UserError, match="--tag: tags are in the MLflow store"):
        app(["list", "--tag", "owner=kim"], standalone_mode=False)
    with pytest.raises(UserError, match="the export of the best trial only"):
        app(["export", "kappa", "--from", uri, "--onnx"], standalone_mode=False)


@pytest.mark.slow
def test_ledger_and_export_go_through_a_server_to_s3_without_credentials_here(serve_mlflow, tmp_path, monkeypatch):
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    s3 = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    s3.start()
    try:
        endpoint = "http://{}:{}".format(*s3.get_host_and_port())
        for name, value in (
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("MLFLOW_S3_ENDPOINT_URL", endpoint),
        ):
            monkeypatch.setenv(name, value)
        bucket = boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket="mlflow")
        server = f"http://127.0.0.1:{serve_mlflow(f'sqlite:///{tmp_path}/server.db', 's3://mlflow/team')}"
        Settings(server).remember()
        sweep = Running(server, tmp_path, "lambda")
        sweep.report(1, 0.5)
        sweep.end()
        (tmp_path / "export").mkdir()
        (tmp_path / "export" / "recipe.yaml").write_text("epochs: 3\n")
        own_run.publish_export(SweepRecord.open(sweep.folder), tmp_path / "export")
        keys = {object.key.rpartition("artifacts/")[2] for object in bucket.objects.all()}
        assert {"ledger.jsonl.gz", "space.yaml", "export/recipe.yaml"} <= keys
        assert fetch_record(server, "lambda").events == sweep.ledger.events
        own_run.fetch_export(server, "lambda", tmp_path / "copy")
        assert (tmp_path / "copy" / "recipe.yaml").exists()
    finally:
        s3.stop()


def test_a_request_reaches_the_driver_through_the_store_and_its_tag_is_removed(uri, tmp_path):
    sweep = Running(uri, tmp_path, "sigma")
    wait_until(lambda: any(found.name == "sigma" for found in list_sweeps(uri)))
    event = make_event({"event": "add", "request": "abc", "recipe": Recipe().model_dump()})
    own_run.send_request(uri, "sigma", event)
    wait_until(lambda: sweep.tracking.requests)
    assert decode(sweep.tracking.requests["request.abc"].encode()) == event
    sweep.tracking.answered.add("request.abc")

    def tags():
        [found] = [found for found in list_sweeps(uri) if found.name == "sigma"]
        return found.run.data.tags

    wait_until(lambda: "request.abc" not in tags())
    assert not sweep.tracking.requests
    sweep.record(event="note", request="n", text="larger images")
    wait_until(lambda: tags().get("notes") == "larger images")
    sweep.end()
    with pytest.raises(UserError, match="sigma is not running"):
        own_run.send_request(uri, "sigma", event)


@pytest.mark.timeout(100)  # MLflow itself tries for longer
@pytest.mark.parametrize("is_listening", [False, True])
def test_a_database_that_does_not_answer_ends_a_command_in_one_sentence(is_listening):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"postgresql://ana:secret@127.0.0.1:{server.getsockname()[1]}/mlflow"
        if is_listening:
            server.listen()
        for ask in (list_sweeps, lambda *given: own_run.request_stop(*given, "mine")):
            with pytest.raises(
                ServerAway, match=r"^MLflow store postgresql://ana:\*\*\*@.*does not answer \(.*Start it"
            ):
                ask(address)
