"""A sweep is read, listed and stopped through its MLflow store alone."""

import time
import uuid
from pathlib import Path

import pytest

from search.core.record import SweepRecord
from search.storage.events import SweepStarted, decode, encode, make_event
from search.storage.folder import SweepFolder
from search.storage.ledger import Ledger
from search.storage.settings import Settings
from search.tracking import remote
from search.tracking import writer as tracking
from search.tracking.writer import Tracking
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
        self.tracking = Tracking(
            uri, EXPERIMENT, sweep=name, sweep_id=sweep_id, metric="val_accuracy", ledger=self.folder.ledger
        )
        self.record(SweepStarted(name=name, id=sweep_id, space=SPACE, settings=Settings(uri, **settings)))
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


def wait(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_running_sweep_is_read_from_the_ledger_that_its_driver_copies(uri, tmp_path):
    sweep = Running(uri, tmp_path, "alpha", owner="ada", tags={"team": "vision"})
    sweep.report(1, 0.5)

    def seen() -> SweepRecord | None:
        try:
            return remote.fetch_record(uri, EXPERIMENT, "alpha")
        except UserError as error:
            assert "no ledger yet" in str(error) or "no such sweep" in str(error)  # noqa: PT017 - both are right here
            return None

    wait(lambda: (found := seen()) is not None and len(found.trials) and found.trials.by_number[0].epoch == 1)
    record = remote.fetch_record(uri, EXPERIMENT, "alpha")
    assert (record.state, record.budget) == ("running", 3)
    [listed] = remote.list_sweeps(uri, EXPERIMENT, owner="ada", tags={"team": "vision"})
    assert (listed.name, listed.state, listed.owner, listed.tags) == ("alpha", "running", "ada", {"team": "vision"})
    sweep.report(2, 0.75)
    sweep.end()
    record = remote.fetch_record(uri, EXPERIMENT, "alpha")
    assert record.state != "running"
    assert record.trials.best().score == 0.75
    assert record.events == sweep.ledger.events
    [listed] = remote.list_sweeps(uri, EXPERIMENT, owner="ada")
    assert (listed.state, listed.run.data.metrics["best_val_accuracy"]) == ("completed", 0.75)


def test_sweeps_are_listed_by_owner_and_tag_and_trials_are_not(uri, tmp_path):
    for name, owner, tags in (("beta", "ben", {"team": "speech"}), ("gamma", "ben", {}), ("delta", "dan", {})):
        Running(uri, tmp_path, name, owner=owner, tags=tags).end()
    names = [sweep.name for sweep in remote.list_sweeps(uri, EXPERIMENT, owner="ben")]
    assert names == ["gamma", "beta"], "the latest is first"
    assert [sweep.name for sweep in remote.list_sweeps(uri, EXPERIMENT, tags={"team": "speech"})] == ["beta"]
    assert not remote.list_sweeps(uri, EXPERIMENT, owner="ben", tags={"team": "vision"})
    assert {"beta", "gamma", "delta"} <= {sweep.name for sweep in remote.list_sweeps(uri, EXPERIMENT)}


def test_a_request_to_stop_reaches_the_driver_and_a_later_driver_does_not_see_it(uri, tmp_path):
    sweep = Running(uri, tmp_path, "epsilon")
    wait(lambda: any(found.name == "epsilon" for found in remote.list_sweeps(uri, EXPERIMENT)))
    assert not sweep.tracking.stop_requested
    remote.request_stop(uri, EXPERIMENT, "epsilon")
    wait(lambda: sweep.tracking.stop_requested)
    sweep.end("interrupted")
    with pytest.raises(UserError, match="epsilon is not running: its state in .* is interrupted"):
        remote.request_stop(uri, EXPERIMENT, "epsilon")
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
    wait(lambda: remote.fetch_record(uri, EXPERIMENT, "epsilon").state == "running")
    time.sleep(0.2)
    assert not again.stop_requested
    again.close("completed")


def test_an_export_comes_back_from_the_store(uri, tmp_path):
    sweep = Running(uri, tmp_path, "zeta")
    with pytest.raises(UserError, match=r"zeta: .* has no export|zeta: no such sweep"):
        remote.fetch_export(uri, EXPERIMENT, "zeta", tmp_path / "none")
    sweep.end()
    made = tmp_path / "exports"
    made.mkdir()
    (made / "recipe.yaml").write_text("epochs: 3\n")
    remote.publish_export(SweepRecord.open(sweep.folder), made)
    remote.fetch_export(uri, EXPERIMENT, "zeta", tmp_path / "copy")
    assert (tmp_path / "copy" / "recipe.yaml").read_text() == "epochs: 3\n"
    assert not (tmp_path / "none").exists()


def test_a_ledger_with_an_incomplete_last_line_is_read(uri, tmp_path):
    sweep = Running(uri, tmp_path, "eta")
    with sweep.folder.ledger.open("ab") as file:
        file.write(encode(sweep.ledger.events[-1])[:20])
    assert sweep.tracking.close("interrupted") == 0
    assert len(remote.fetch_record(uri, EXPERIMENT, "eta").trials) == 1


@pytest.mark.parametrize("act", [remote.fetch_record, remote.request_stop])
def test_a_wrong_name_or_store_ends_in_one_sentence(act, uri, tmp_path):
    Running(uri, tmp_path, "theta").end()
    with pytest.raises(UserError, match=r"iota: no such sweep in sqlite.*There are: theta"):
        act(uri, EXPERIMENT, "iota")
    with pytest.raises(UserError, match="no such database"):
        act(f"sqlite:///{tmp_path}/none.db", EXPERIMENT, "theta")
    assert not (tmp_path / "none.db").exists()


def test_the_commands_read_the_store(uri, tmp_path, capsys, monkeypatch):
    from search.cli.main import app

    monkeypatch.setenv("COLUMNS", "120")
    sweep = Running(uri, tmp_path, "kappa", owner="kim", tags={"team": "vision"})
    sweep.report(1, 0.5)
    sweep.end()
    app(["list", "--tracking-uri", uri, "--owner", "kim", "--tag", "team=vision"], standalone_mode=False)
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["name", "state"]
    assert row.split()[:5] == ["kappa", "completed", "1", "50.0", "%"]
    assert row.split()[-2:] == ["kim", "team=vision"]
    app(["show", "kappa", "--tracking-uri", uri], standalone_mode=False)
    assert "50.0 ± 2.0 %" in capsys.readouterr().out
    with pytest.raises(UserError, match="kappa is not running"):
        app(["stop", "kappa", "--tracking-uri", uri], standalone_mode=False)
    with pytest.raises(UserError, match="--owner and --tag: these are in the MLflow store"):
        app(["list", "--owner", "kim"], standalone_mode=False)
    with pytest.raises(UserError, match="the export of the best trial only"):
        app(["export", "kappa", "--tracking-uri", uri, "--onnx"], standalone_mode=False)


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
        sweep = Running(server, tmp_path, "lambda")
        sweep.report(1, 0.5)
        sweep.end()
        (tmp_path / "export").mkdir()
        (tmp_path / "export" / "recipe.yaml").write_text("epochs: 3\n")
        remote.publish_export(SweepRecord.open(sweep.folder), tmp_path / "export")
        keys = {object.key.rpartition("artifacts/")[2] for object in bucket.objects.all()}
        assert {"ledger.jsonl", "space.yaml", "export/recipe.yaml"} <= keys
        assert remote.fetch_record(server, EXPERIMENT, "lambda").events == sweep.ledger.events
        remote.fetch_export(server, EXPERIMENT, "lambda", tmp_path / "copy")
        assert (tmp_path / "copy" / "recipe.yaml").exists()
    finally:
        s3.stop()


def test_a_request_reaches_the_driver_through_the_store_and_its_tag_is_removed(uri, tmp_path):
    sweep = Running(uri, tmp_path, "sigma")
    wait(lambda: any(found.name == "sigma" for found in remote.list_sweeps(uri, EXPERIMENT)))
    event = make_event({"event": "add", "request": "abc", "recipe": Recipe().model_dump()})
    remote.send_request(uri, EXPERIMENT, "sigma", event)
    wait(lambda: sweep.tracking.requests)
    assert decode(sweep.tracking.requests["request.abc"].encode()) == event
    sweep.tracking.answered.add("request.abc")

    def tags():
        [found] = [found for found in remote.list_sweeps(uri, EXPERIMENT) if found.name == "sigma"]
        return found.run.data.tags

    wait(lambda: "request.abc" not in tags())
    assert not sweep.tracking.requests
    sweep.record(event="note", request="n", text="larger images")
    wait(lambda: tags().get("notes") == "larger images")
    sweep.end()
    with pytest.raises(UserError, match="sigma is not running"):
        remote.send_request(uri, EXPERIMENT, "sigma", event)
