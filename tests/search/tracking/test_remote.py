"""A sweep is read through its MLflow store alone."""

import os
import socket
import uuid
from pathlib import Path

import pytest

from analysis.reading.remote import fetch_record
from analysis.reading.run_store import open_experiments
from analysis.reading.store import ServerAway
from ledger.events import SweepStarted, encode
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.tracking import own_run
from search.tracking import writer as tracking
from search.tracking.writer import Tracking
from tests.made_events import make_event
from tests.waiting import wait_until
from training.errors import UserError
from training.recipe import Recipe

EXPERIMENT = "technique-search"
SPACE = "format: 1\nrecipe: {optimizer: {name: momentum, lr: {log_uniform: [0.01, 0.1]}}}\nsearch: {trials: 3}\n"


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    for name in ("FLUSH_SECONDS", "PUBLISH_SECONDS"):
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


def find(uri: str, name: str):
    """The sweep's own run."""
    with open_experiments(uri) as opened:
        return opened.find(name)


def test_a_running_sweep_is_read_from_the_ledger_that_its_driver_copies(uri, tmp_path):
    sweep = Running(uri, tmp_path, "alpha", owner="ada", tags={"team": "vision"})
    sweep.report(1, 0.5)

    def seen() -> SweepRecord | None:
        try:
            return fetch_record(uri, "alpha")
        except UserError as error:
            assert "does not have the ledger" in str(error) or "no such sweep" in str(error)  # noqa: PT017 - both are right
            return None

    wait_until(lambda: (found := seen()) is not None and len(found.trials) and found.trials.by_number[0].epoch == 1)
    record = fetch_record(uri, "alpha")
    assert (record.state, record.budget) == ("running", 3)
    tags = find(uri, "alpha").data.tags
    assert (tags["state"], tags["mlflow.user"], tags["tag.team"]) == ("running", "ada", "vision")
    sweep.report(2, 0.75)
    sweep.end()
    record = fetch_record(uri, "alpha")
    assert record.state != "running"
    assert record.trials.best().score == 0.75
    assert record.events == sweep.ledger.events
    data = find(uri, "alpha").data
    assert (data.tags["state"], data.metrics["best_val_accuracy"]) == ("completed", 0.75)


def test_the_latest_of_two_sweeps_with_one_name_is_read(uri, tmp_path):
    for number in range(2):
        sweep = Running(uri, tmp_path / str(number), "beta")
        sweep.end()
    assert fetch_record(uri, "beta").header.id == sweep.ledger.events[0].id


def test_an_export_is_an_artifact_of_the_sweeps_run(uri, tmp_path):
    sweep = Running(uri, tmp_path, "zeta")
    sweep.end()
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "recipe.yaml").write_text("epochs: 3\n")
    own_run.publish_export(SweepRecord.open(sweep.folder), tmp_path / "exports")
    with open_experiments(uri) as opened:
        copy = opened.client.download_artifacts(opened.find("zeta").info.run_id, "export", str(tmp_path))
    assert Path(copy, "recipe.yaml").read_text() == "epochs: 3\n"


UNREADABLE = r"the artifact ledger.jsonl.gz of the sweep's run cannot be read \("
DAMAGES = {
    "deleted": (lambda path: path.unlink(), "zeta: its run in sqlite:.* does not have the ledger"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), rf"{UNREADABLE}.*not a regular file"),
    "a named pipe": (lambda path: (path.unlink(), os.mkfifo(path)), UNREADABLE),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_artifacts_that_are_gone_are_refused_in_a_sentence(uri, tmp_path, damage):
    damage, reason = DAMAGES[damage]
    Running(uri, tmp_path, "zeta").end()
    folder = Path(find(uri, "zeta").info.artifact_uri.removeprefix("file://"))
    for name in ("ledger.jsonl.gz", "space.yaml"):
        damage(folder / name)
    with pytest.raises(UserError, match=reason):
        fetch_record(uri, "zeta")


def test_a_ledger_with_an_incomplete_last_line_is_read(uri, tmp_path):
    sweep = Running(uri, tmp_path, "eta")
    with sweep.folder.ledger.open("ab") as file:
        file.write(encode(sweep.ledger.events[-1])[:20])
    assert sweep.tracking.close("interrupted") == 0
    assert len(fetch_record(uri, "eta").trials) == 1


def test_a_wrong_name_or_store_ends_in_one_sentence(uri, tmp_path):
    Running(uri, tmp_path, "theta").end()
    with pytest.raises(UserError, match=r"iota: no such sweep in sqlite.*There are: theta"):
        fetch_record(uri, "iota")
    with pytest.raises(UserError, match="no such database"):
        fetch_record(f"sqlite:///{tmp_path}/none.db", "theta")
    assert not (tmp_path / "none.db").exists()


def test_all_experiments_are_read_or_the_one_that_mlflows_variable_names(uri, tmp_path, monkeypatch):
    Running(uri, tmp_path, "upsilon", experiment="birds").end()
    assert fetch_record(uri, "upsilon").name == "upsilon"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
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
    app(["show", "kappa", "--from", uri], standalone_mode=False)
    assert "50.0 ± 2.0 %" in capsys.readouterr().out


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
    finally:
        s3.stop()


@pytest.mark.timeout(100)  # MLflow itself tries for longer
@pytest.mark.parametrize("is_listening", [False, True])
def test_a_database_that_does_not_answer_ends_a_command_in_one_sentence(is_listening):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"postgresql://ana:secret@127.0.0.1:{server.getsockname()[1]}/mlflow"
        if is_listening:
            server.listen()
        with pytest.raises(ServerAway, match=r"^MLflow store postgresql://ana:\*\*\*@.*does not answer \(.*Start it"):
            fetch_record(address, "mine")
