"""`sweep ui`: its port, and the processes it starts."""

import http.server
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from ledger.events import RunOpened
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.cli.inspect.mlflow_ui import RUNS, find_free_port, find_page, ui
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from training.errors import UserError

# It starts a child process, prints the child's number, and waits; neither ends by itself.
SERVER = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '300']).pid, flush=True); time.sleep(300)"
PROGRAM = f"""
import sys
from search.runner.interrupt import Interrupted, listen
from search.cli.inspect.mlflow_ui import run_group
listen()
try:
    sys.exit(run_group([sys.executable, "-c", {SERVER!r}]))
except Interrupted as end:
    sys.exit(end.exit_code)
"""


@pytest.mark.parametrize("port", [99999999, 65536, 0, -1])
def test_an_invalid_port_is_refused(port):
    with pytest.raises(UserError, match=rf"--port={port}: a port is a number from 1 to 65535"):
        find_free_port(port)


def test_a_port_in_use_is_skipped():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert find_free_port(taken.getsockname()[1]) != taken.getsockname()[1]


def test_the_last_port_in_use_gives_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 65535))
        taken.listen()
        with pytest.raises(UserError, match="--port=65535: no port from 65535 to 65535 can be opened. Name another"):
            find_free_port(65535)


def test_it_opens_the_runs_of_the_latest_sweep_or_of_a_named_one(tmp_path):
    here, elsewhere = (f"sqlite:///{tmp_path}/{name}.db" for name in ("here", "elsewhere"))
    assert find_page(None, tmp_path / "sweeps", here) == RUNS
    for number, name in enumerate(("first", "second")):
        folder = SweepFolder(tmp_path / "sweeps" / name)
        create_folder(folder, make_header(name, f"id{number}", load_space("quick", []), Settings(tracking_uri=here)))
        SweepRecord.open(folder).append(RunOpened(run="r", experiment="7/\x1b["))
        os.utime(folder.ledger, (number, number))
    filtered = (
        "/#/experiments/7/%1B%5B/runs?workflowType=machine_learning&searchFilter=tags.sweep_id%20%3D%20%27id{}%27"
    )
    assert find_page(None, tmp_path / "sweeps", here) == filtered.format(1)
    assert find_page("first", tmp_path / "sweeps", here) == filtered.format(0)
    assert find_page(None, tmp_path / "sweeps", elsewhere) == RUNS
    with pytest.raises(UserError, match=r"first: .*elsewhere\.db does not have its runs"):
        find_page("first", tmp_path / "sweeps", elsewhere)
    # A sweep of a stranger, whose store nobody has named, closes no page.
    folder = SweepFolder(tmp_path / "sweeps" / "strange")
    settings = Settings(tracking_uri="http://stranger:5000")
    create_folder(folder, make_header("strange", "id3", load_space("quick", []), settings))
    SweepRecord.open(folder).append(RunOpened(run="r", experiment="7"))
    assert find_page(None, tmp_path / "sweeps", here) == RUNS
    with pytest.raises(UserError, match="third: no such sweep"):
        find_page("third", tmp_path / "sweeps", here)


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_address_is_printed_when_it_answers(tmp_path, monkeypatch, capsys):
    (tmp_path / "mlflow.db").touch()
    port = find_free_port(20_000)

    def run(command, more):
        assert command[command.index("--port") + 1] == str(port)
        time.sleep(0.5)
        assert "MLflow UI:" not in capsys.readouterr().out
        with http.server.HTTPServer(("127.0.0.1", port), Healthy) as server:
            server.handle_request()
        deadline = time.monotonic() + 60
        while not (printed := capsys.readouterr().out) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert printed.startswith(f"MLflow UI: http://127.0.0.1:{port}/")
        return 0

    monkeypatch.setattr("search.cli.inspect.mlflow_ui.run_group", run)
    ui(None, f"sqlite:///{tmp_path}/mlflow.db?timeout=30", tmp_path / "sweeps", port)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_the_processes_of_the_ui_end_with_it(number, code):
    ui = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(ui.stdout.readline()))
    os.kill(ui.pid, number)
    assert ui.wait(timeout=60) == code
    deadline = time.monotonic() + 60
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
