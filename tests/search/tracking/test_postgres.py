"""MLflow over PostgreSQL, as teams run it: a real server from Debian's packages, restarted while a sweep logs."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from base64 import b64encode
from pathlib import Path

import pytest

from ledger.events import SweepStarted
from ledger.settings import Settings
from search.tracking import writer as tracking
from search.tracking.writer import Tracking
from tests.made_events import make_event
from tests.waiting import wait_until
from training.errors import UserError
from training.recipe import Recipe

pytestmark = pytest.mark.slow
EXPERIMENT = "technique-search"
SPACE = "format: 1\nrecipe: {optimizer: {name: momentum, lr: {log_uniform: [0.01, 0.1]}}}\nsearch: {trials: 16}\n"
TRIALS, EPOCHS = 16, 6


def find_programs() -> Path | None:
    """Return the folder with all of PostgreSQL's programs; links to some of them may be elsewhere."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Postgres:
    """A server of its own; it refuses to run as root, so root starts it as the user `postgres`."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.home = Path(tempfile.mkdtemp(dir="/tmp"))
        self.user = {"user": "postgres"} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(self.home, "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        word = self.home / "password"
        word.write_text("se:cret")
        word.chmod(0o644)
        self._call("initdb", "-D", self.home / "data", "-U", "sweep", "--auth=scram-sha-256", f"--pwfile={word}")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self.home}"
        self.start = lambda: self._call("pg_ctl", "-D", self.home / "data", "-w", "-o", options, "start")
        self.start()
        environment = {**os.environ, "PGPASSWORD": "se:cret"}
        create = [programs / "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "sweep", "mlflow"]
        subprocess.run(create, env=environment, check=True, capture_output=True)
        self.uri = f"postgresql://sweep:se%3Acret@127.0.0.1:{self.port}/mlflow"

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self.home / "data", "-w", "-m", "immediate", "stop")

    def _call(self, name: str, *arguments: object) -> None:
        command = [str(self.programs / name), *map(str, arguments)]
        with (self.home.parent / f"{self.home.name}.log").open("a") as log:
            subprocess.run(command, cwd=self.home, stdout=log, stderr=log, check=True, timeout=120, **self.user)


@pytest.fixture(scope="module")
def postgres():
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    try:
        server = Postgres(programs)
    except (LookupError, PermissionError) as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    yield server
    server.stop()
    shutil.rmtree(server.home)
    server.home.with_suffix(".log").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.1)


def log_a_sweep(uri: str, after_half) -> str:
    """Log 16 trials at once, as a driver does, and return the id of the sweep."""
    sweep_id = uuid.uuid4().hex
    made = Tracking(uri, EXPERIMENT, sweep="team-1", sweep_id=sweep_id, metric="val_accuracy")
    made(SweepStarted(name="team-1", id=sweep_id, space=SPACE, settings=Settings()))
    made.start()
    made.wait_ready()
    for trial in range(TRIALS):
        recipe = Recipe(seed=trial).model_dump()
        made(make_event({"event": "start", "trial": trial, "recipe": recipe, "params": None, "origin": "sampler"}))
    for epoch in range(1, EPOCHS + 1):
        for trial in range(TRIALS):
            score = trial / 100 + epoch / 10
            report = {"event": "report", "trial": trial, "epoch": epoch, "best_epoch": epoch, "score": score}
            made(make_event({**report, "standard_error": 0.02, "metrics": {"val_accuracy": score}}))
        if epoch == EPOCHS // 2:
            after_half(made)
    for trial in range(TRIALS):
        made(make_event({"event": "end", "trial": trial, "state": "completed"}))
    assert made.close("completed") == 0
    assert made.refused == 0
    return sweep_id


def check_figures(uri: str, sweep_id: str) -> None:
    """Every figure is in the store once."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    runs = client.search_runs([experiment], f"tags.sweep_id = '{sweep_id}' AND tags.trial != ''")
    assert sorted(run.data.tags["trial"] for run in runs) == [f"{trial:04d}" for trial in range(TRIALS)]
    for run in runs:
        trial = int(run.data.tags["trial"])
        history = client.get_metric_history(run.info.run_id, "val_accuracy")
        wanted = [(epoch, pytest.approx(trial / 100 + epoch / 10)) for epoch in range(1, EPOCHS + 1)]
        assert sorted((point.step, point.value) for point in history) == wanted
        assert run.info.status == "FINISHED"
        assert run.data.params["seed"] == str(trial)


def test_every_figure_arrives_once_though_the_database_restarts(postgres, caplog):
    def restart(made):
        wait_until(lambda: len(made.run_ids) == TRIALS)
        postgres.stop()
        time.sleep(1.0)
        postgres.start()

    sweep_id = log_a_sweep(postgres.uri, restart)
    check_figures(postgres.uri, sweep_id)
    assert "se:cret" not in caplog.text
    assert "se%3Acret" not in caplog.text


def test_a_server_over_the_database_takes_user_and_password_from_the_environment(postgres, serve_mlflow, monkeypatch):
    port = serve_mlflow(postgres.uri)
    from mlflow.server import app

    wanted, refused = f"Basic {b64encode(b'ada:word').decode()}", threading.Event()
    inner = app.wsgi_app

    def guarded(environ, respond):
        if environ.get("HTTP_AUTHORIZATION") == wanted or environ["PATH_INFO"] == "/health":
            return inner(environ, respond)
        refused.set()
        respond("401 Unauthorized", [("Content-Type", "text/plain")])
        return [b"who are you?"]

    monkeypatch.setattr(app, "wsgi_app", guarded)
    uri = f"http://127.0.0.1:{port}"
    with pytest.raises(UserError, match=rf"--tracking-uri {uri}: MLflow cannot open it \(.*401"):
        log_a_sweep(uri, lambda made: None)
    assert refused.is_set()
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "word")
    check_figures(uri, log_a_sweep(uri, lambda made: None))
