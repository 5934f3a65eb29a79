"""The server starts quickly and ends with its command; the right sweep is served, and mistakes end in one sentence."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import pytest

from analysis.web_server import open_socket
from search.dashboard.app import LOG_BYTES, make_app, read_log
from search.dashboard.live_sweep import LiveSweep
from tests.commands import call
from tests.search.dashboard.conftest import append
from training.errors import UserError

HEAVY = ("torch", "ray", "mlflow", "lightning", "timm", "optuna", "matplotlib", "sklearn")


@contextmanager
def served(folder, *arguments, name=None):
    """Serve a sweep as a user does, or with an empty name the list of all; yields the printed address."""
    names = [folder.name if name is None else name]
    command = [sys.executable, "-m", "search", "dashboard", *filter(None, names), "--storage", str(folder.path.parent)]
    server = subprocess.Popen([*command, "--port", "0", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().split(": ", 1)[1].split(" (")[0]
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(15)
        finally:
            server.kill()


@pytest.mark.parametrize("is_asking", [False, True])
def test_ctrl_c_ends_the_server_without_a_fault_also_with_a_request_in_flight(make_sweep, events, is_asking):
    folder = make_sweep(events[:9])
    command = [sys.executable, "-m", "search", "dashboard", "mine", "--storage", str(folder.path.parent), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = server.stdout.readline().split(": ", 1)[1].split(" (")[0]
    assert urllib.request.urlopen(f"{address}state", timeout=20).status == 200
    host = address.split("/")[2]
    with socket.create_connection(host.split(":")) as connection:
        if is_asking:  # the rest of the body does not come
            head = f"POST /requests HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 99\r\n\r\n"
            connection.sendall(head.encode() + b"{")
            time.sleep(0.5)
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=20)
    assert (server.returncode, errors) == (0, "")


def test_the_server_imports_nothing_heavy_for_the_page_and_its_state(make_sweep, events):
    folder = make_sweep(events)
    code = (
        "import sys, uvicorn; from pathlib import Path; from search.cli.inspect import dashboard_command\n"
        "from search.dashboard.live_sweep import LiveSweep; from search.dashboard.app import make_app\n"
        "from search.dashboard.guard import Guard; from ledger.folder import SweepFolder\n"
        f"live = LiveSweep(SweepFolder(Path({str(folder.path)!r}))); make_app(live)\n"
        f"assert live.describe(0, '')['rows']; print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def start_beside(folder):
    """Start a process with a dashboard, which kills itself after a line of input; return it and the address."""
    code = (
        "import os, sys; from pathlib import Path; from rich.console import Console\n"
        "from search.dashboard.serve import beside; from ledger.folder import SweepFolder\n"
        f"with beside(SweepFolder(Path({str(folder.path)!r})), [], Console(file=sys.stdout, width=200)):\n"
        "    sys.stdout.flush(); sys.stdin.readline(); os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return parent, parent.stdout.readline().split(": ", 1)[1].strip()


def ask(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.loads(answer.read())


def wait_for_end(address):
    for _ in range(150):
        try:
            urllib.request.urlopen(f"{address}state", timeout=5).close()
        except OSError:
            return
        time.sleep(0.2)
    pytest.fail("the dashboard goes on without its parent")


@pytest.mark.slow
def test_the_dashboard_of_a_run_ends_with_it_however_that_ends(make_sweep, events):
    parent, address = start_beside(make_sweep(events[:9]))
    assert ask(f"{address}state")["head"]["state"]
    parent.communicate("end\n", timeout=30)
    wait_for_end(address)


@pytest.mark.slow
def test_an_open_page_gets_the_last_state_and_the_findings_before_the_dashboard_of_a_run_ends(make_sweep, events):
    folder = make_sweep(events[:80])
    parent, address = start_beside(folder)
    assert not ask(f"{address}state?page=mine")["is_over"]
    append(folder, events[80:])
    parent.communicate("end\n", timeout=30)  # which also waits until nobody writes into its output
    until = time.monotonic() + 120
    while not (last := ask(f"{address}state?page=mine"))["is_over"]:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert (last["head"]["done"], last["head"]["budget"]) == (30, 30)
    assert "from 30 trials that had ended" in ask(f"{address}findings?leaving=mine")["html"]
    wait_for_end(address)


@pytest.mark.parametrize(
    "body",
    [
        "[1]",
        "no JSON",
        "{",
        "[" * 5000,
        '{"action": "fly"}',
        '{"action": "extend", "trials": "x"}',
        '{"action": "extend", "trials": %s}' % ("9" * 5000),
        '{"action": "extend", "trials": 1000000000000}',
        '{"action": "stop", "trial": "%s"}' % ("9" * 5000),
        '{"action": "stop", "trial": "\\ud800"}',
        '{"action": "\\ud800"}',
        '{"action": "add", "recipe": "backbone.name=\\ud800"}',
        '{"action": "add", "recipe": "backbone.name=\\"\\\\ud800\\""}',
        '{"action": "add", "recipe": "epochs=1000000000000"}',
    ],
)
def test_a_request_that_is_not_of_the_page_is_refused_with_a_sentence(make_sweep, events, body):
    status, answer = post(LiveSweep(make_sweep(events)), body)
    assert status == 409
    assert len(json.loads(answer)["sentence"]) > 10


def post(live, body):
    """Return the status and the body of the answer to a button's request."""
    messages = []

    async def receive():
        return (
            {"type": "http.request", "body": body.encode(), "more_body": False} if body else {"type": "http.disconnect"}
        )

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": "POST", "path": "/requests", "headers": [], "query_string": b""}
    asyncio.run(make_app(live)(scope, receive, send))
    return messages[0]["status"], messages[1]["body"]


def test_a_page_that_ends_while_it_sends_a_request_is_no_fault(make_sweep):
    assert post(LiveSweep(make_sweep()), None)[0] == 400


@pytest.mark.parametrize("changed", [{"epoch": 10**12}, {"epoch": 0}, {"trial": 10**12}, {"time": 1e300}])
def test_a_ledger_with_a_number_that_cannot_be_is_named_as_damaged(make_sweep, events, changed):
    number = next(i for i, event in enumerate(events) if event.event == "report")
    folder = make_sweep([*events[:number], events[number].model_copy(update=changed), *events[number + 1 :]])
    assert "not a line of a ledger" in LiveSweep(folder).describe(0, "")["problem"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--storage", "nowhere"], "--storage=.*nowhere: there is no sweep. Start one with sweep run"),
        (["yours"], "yours: no such sweep"),
        (["mine", "--host", ""], "--host=: an address is missing. Use 127.0.0.1"),
        (["mine", "--host", "203.0.113.7"], "--host=203.0.113.7: this machine cannot listen there"),
    ],
)
def test_a_mistake_ends_in_one_sentence(make_sweep, monkeypatch, arguments, words):
    monkeypatch.chdir(make_sweep().path.parent.parent)
    with pytest.raises(UserError, match=words):
        call("dashboard", *arguments)


def test_a_port_in_use_gives_the_next_one():
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with open_socket("127.0.0.1", port, 50) as other:
            assert other.getsockname()[1] > port


def test_a_job_of_a_cluster_does_not_take_a_dashboard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["submit", "quick", "--address", "http://head:8265", "--storage", "/shared", "--dashboard"]
    with pytest.raises(UserError, match="--dashboard: it would be served on the cluster"):
        call(*arguments, "--tracking-uri", "http://host:5000")


def test_the_log_of_a_trial_is_its_end_without_passwords(tmp_path):
    assert "no log here" in read_log(tmp_path)
    (tmp_path / "log.txt").write_text("begin\n" + LOG_BYTES * "x" + "\nhttp://ada:secret@host\n")
    assert read_log(tmp_path) == "http://ada:***@host\n"


def test_beyond_loopback_every_answer_needs_the_token(make_sweep, events):
    with served(make_sweep(events[:9]), "--host", "0.0.0.0") as address:
        plain = address.partition("?")[0].replace(socket.gethostname(), "127.0.0.1")
        for path in ("", "state", "dashboard.js", "trials/0/log", "findings"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(plain + path, timeout=20)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with suppress(urllib.error.URLError):
            assert opener.open(f"{plain}?{address.partition('?')[2]}", timeout=20).status == 200
        assert opener.open(f"{plain}state", timeout=20).status == 200


@pytest.mark.parametrize(
    ("line", "runner"),
    [
        ("run quick --name new", "run_sweep"),
        ("resume mine", "resume_sweep"),
        ("extend mine --trials 2", "resume_sweep"),
    ],
)
def test_the_dashboard_of_a_command_is_served_exactly_while_the_sweep_runs(make_sweep, monkeypatch, line, runner):
    monkeypatch.chdir(make_sweep().path.parent.parent)
    seen = []

    @contextmanager
    def note_beside(folder, files, console):
        seen.append(f"{folder.name} is served")
        try:
            yield
        finally:
            seen.append("ended")

    def run_nothing(*arguments):
        seen.append("runs")
        raise UserError("enough")

    monkeypatch.setattr("search.dashboard.serve.beside", note_beside)
    monkeypatch.setattr(f"search.runner.sweep.{runner}", run_nothing)
    for more in ([], ["--dashboard"]):
        with pytest.raises(UserError, match="enough"):
            call(*line.split(), *more)
    name = "new" if "new" in line else "mine"
    assert seen == ["runs", f"{name} is served", "runs", "ended"]
