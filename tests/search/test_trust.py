"""What a stranger's ledger names gets no password, token or key of this user; what the user has named does."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import search
import search.cli.main
from ledger import trust as places
from ledger.settings import Settings
from ledger.trust import check_trusted, is_trusted, list_file, trust
from search.arguments import absolute_uri
from training.errors import UserError

TOKEN = "pl4nted"
# Each command that uses a place of the ledger; {} is the variable that names it.
WITH_STORE = ["resume tiny", "confirm tiny", "ablate tiny"]
WITH_STORE += ["export tiny --register model"]
DRIVING = ["resume tiny", "confirm tiny", "ablate tiny"]
# Commands that look at such a sweep, or change it, without its places.
LOOKING = ["show tiny", "show tiny 0000", "list", "export tiny"]
LOOKING += ["add tiny optimizer.lr=0.5", "rm --yes tiny"]


@pytest.fixture
def stranger():
    """A server that keeps what it is asked: the path and the headers of each request."""
    asked = []

    class Stranger(BaseHTTPRequestHandler):
        def answer(self):
            asked.append((self.path, dict(self.headers)))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.asked, server.host = asked, f"127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def new_user(tmp_path, monkeypatch):
    """A user with a token who has named nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(places, "_named", set())
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    for name in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "SWEEP_COPY_TO"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sweep(tmp_path, trained_sweep, monkeypatch):
    """A function that makes the sweep `tiny`, whose ledger names places, and returns its folder."""
    monkeypatch.chdir(tmp_path)

    def make(**named):
        folder = tmp_path / "sweeps" / "tiny"
        shutil.copytree(trained_sweep.path, folder)
        lines = (folder / "ledger.jsonl").read_text().splitlines()
        header = json.loads(lines[1])
        header["settings"] |= {"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db", **named}
        (folder / "ledger.jsonl").write_text("\n".join([lines[0], json.dumps(header), *lines[2:]]) + "\n")
        return type(trained_sweep)(folder)

    return make


def call(line, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sweep", *shlex.split(line)])
    return search.cli.main._run_command()


@pytest.mark.parametrize("line", [*WITH_STORE, *LOOKING])
def test_no_command_asks_an_mlflow_server_that_only_the_ledger_names(line, stranger, sweep, monkeypatch, capfd):
    folder = sweep(tracking_uri=f"http://{stranger.host}")
    before = folder.ledger.read_bytes()
    code = call(line, monkeypatch)
    said = capfd.readouterr().err
    assert stranger.asked == []
    assert code == (2 if line in WITH_STORE else 0), said
    if line in WITH_STORE:
        assert f"put MLFLOW_TRACKING_URI=http://{stranger.host} before this command, once." in said
        assert folder.ledger.read_bytes() == before
        assert [path.name for path in folder.path.parent.iterdir()] == ["tiny"]


def test_the_python_api_asks_no_such_server_either(stranger, sweep):
    sweep(tracking_uri=f"http://{stranger.host}")
    result = search.open("tiny")
    assert len(result.plot.sweep.trials) == 5
    result.report()
    with pytest.raises(UserError, match="the ledger of this sweep names it"):
        search.resume("tiny")
    assert stranger.asked == []


def test_the_variable_names_a_server_once_and_then_it_gets_the_token(stranger, sweep, monkeypatch):
    uri = f"http://{stranger.host}"
    sweep(tracking_uri=uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    call("confirm tiny", monkeypatch)
    assert f"Bearer {TOKEN}" in [headers.get("Authorization") for _, headers in stranger.asked]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr(places, "_named", set())  # another process
    stranger.asked.clear()
    call("confirm tiny", monkeypatch)
    assert stranger.asked
    assert stat.S_IMODE(list_file().stat().st_mode) == 0o600
    assert TOKEN not in list_file().read_text()


@pytest.mark.parametrize("line", DRIVING)
def test_no_command_joins_a_cluster_that_only_the_ledger_names(line, stranger, sweep, monkeypatch, capfd):
    sweep(address=stranger.host)
    monkeypatch.setattr("search.runner.sweep.probe_cluster", lambda address: pytest.fail("it was asked"))
    assert call(line, monkeypatch) == 2
    assert f"put RAY_ADDRESS={stranger.host} before this command" in capfd.readouterr().err
    assert stranger.asked == []


@pytest.mark.parametrize("how", ["option", "variable", "earlier sweep", "this machine"])
def test_a_cluster_that_the_user_names_is_joined(how, stranger, sweep, monkeypatch, capfd):
    sweep(address=stranger.host)
    if how == "variable":
        monkeypatch.setenv("RAY_ADDRESS", stranger.host)
    if how == "earlier sweep":
        Settings(address=stranger.host).remember()
    joined = []

    def look(address):
        joined.append(address)
        raise UserError("that is far enough")

    monkeypatch.setattr("search.runner.sweep.probe_cluster", look)
    option = {"option": f" --address {stranger.host}", "this machine": " --address local"}.get(how, "")
    assert call(f"resume tiny{option}", monkeypatch) == 2
    assert joined == [None if how == "this machine" else stranger.host], capfd.readouterr().err


@pytest.mark.parametrize("line", DRIVING)
def test_no_command_copies_to_a_store_that_only_the_ledger_names(line, stranger, sweep, monkeypatch, capfd):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)  # this one would be sent as it is
    sweep(copy_to=f"s3://bucket/sweeps?scheme=http&endpoint_override={stranger.host}")
    assert call(line, monkeypatch) == 2
    assert "put SWEEP_COPY_TO='s3://bucket/sweeps?scheme=http" in capfd.readouterr().err
    assert stranger.asked == []


def test_a_command_that_a_scheduler_repeats_names_its_places_again(stranger, sweep, monkeypatch):
    folder, uri = sweep(copy_to="s3://bucket/sweeps"), "s3://other/sweeps"
    given = []
    monkeypatch.setattr("search.api._continue", lambda folder, changes, *rest: given.append(changes))
    search.run(folder.space, name="tiny", or_resume=True, copy_to=uri, tracking_uri=f"http://{stranger.host}")
    assert (given[0]["copy_to"], given[0]["tracking_uri"]) == (uri, f"http://{stranger.host}")
    assert given[0]["address"] is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET artifact_uri = 'http://{}/'",
        "UPDATE runs SET artifact_uri = 'models:/m-1'",
        "UPDATE runs SET artifact_uri = 'runs:/abc/artifacts'",
        "UPDATE runs SET artifact_uri = 'mlflow-artifacts:/1'",
        "UPDATE runs SET artifact_uri = 'file://{}/share'",
        "UPDATE experiments SET artifact_location = 'mlflow-artifacts://{}/'",
        "INSERT INTO logged_models (model_id, experiment_id, name, artifact_location, creation_timestamp_ms, "
        "last_updated_timestamp_ms, status, lifecycle_stage) VALUES ('m-1', 1, 'm', 'http://{}/', 0, 0, 1, 'active')",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN UPDATE runs SET artifact_uri = 'http://{}/'; END",
    ],
)
def test_a_database_whose_artifacts_are_elsewhere_must_be_named(change, stranger, tmp_path, monkeypatch):
    from search.tracking.mlflow_store import open_store

    uri, file = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlflow.db"
    store = open_store(uri, "technique-search")
    store.client.create_run(store.experiments[0])
    assert Settings(uri).completed().tracking_uri == uri
    with sqlite3.connect(file) as opened:
        opened.execute(change.format(stranger.host))
    with pytest.raises(UserError, match=f"put MLFLOW_TRACKING_URI={uri} before"):
        Settings(uri).completed()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert Settings(uri).completed().tracking_uri == uri


def test_a_file_that_is_no_database_is_left_to_mlflow(tmp_path):
    (tmp_path / "mlflow.db").write_text("no database")
    assert is_trusted("--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db")


@pytest.mark.parametrize("option", places.VARIABLES)
@pytest.mark.parametrize(
    "place",
    [
        "http://ana:x@evil\\@host:5000",  # masked it is the named one, and urllib3 asks `evil`
        "http://ana:x@host:5000",
        "http://host:5000\n",
        "http://host:5000/",
        "https://host:5000",
        "http://evil/?http://host:5000",
        "file://host/share",
        "sqlite+x:///a",
    ],
)
def test_only_the_very_place_is_known(option, place):
    trust("http://ana:***@host:5000", "http://host:5000")
    with pytest.raises(UserError, match=f"^{option}="):
        check_trusted(option, place)


def test_a_place_with_escapes_of_the_terminal_is_shown_without_them():
    with pytest.raises(UserError) as refused:
        check_trusted("--address", "evil\x1b]0;title\x07:6379")
    assert str(refused.value).isprintable()


def test_places_of_this_machine_need_no_name():
    for place in (None, "", "auto", "local", "file:///shared/sweeps", "sqlite:////nowhere/mlflow.db"):
        for option in places.VARIABLES:
            check_trusted(option, place)
    trust("auto", "file:///shared/sweeps", "sqlite:////nowhere/mlflow.db")
    assert not list_file().exists()


def test_a_password_from_the_environment_goes_to_the_server_that_the_user_has_named(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ana")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", TOKEN)
    kept = Settings("http://ana:***@host:5000")
    with pytest.raises(UserError, match="put MLFLOW_TRACKING_URI=http://host:5000 before"):
        kept.completed()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ana:{TOKEN}@host:5000")
    assert absolute_uri(kept.completed().tracking_uri) == f"http://ana:{TOKEN}@host:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert kept.completed().tracking_uri == "http://host:5000", "it was named once"
    assert TOKEN not in list_file().read_text()


def test_a_home_that_cannot_be_written_stops_no_sweep(monkeypatch, tmp_path):
    (tmp_path / "state").touch()
    trust("http://host:5000")
    check_trusted("--tracking-uri", "http://host:5000")  # as long as the process lives
    monkeypatch.setattr(places, "_named", set())
    assert not is_trusted("--tracking-uri", "http://host:5000")
