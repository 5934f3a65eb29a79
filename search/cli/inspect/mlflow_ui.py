"""`sweep ui`: the MLflow UI for the store that sweeps log to."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from analysis.reading.store import sqlite_file
from ledger import TRACKING_URI
from ledger.formatting import mask_secrets
from search.arguments import absolute_uri, check_database
from search.cli.options import Storage, TrackingUri
from search.runner.interrupt import until_ctrl_c
from search.sweep_options import STORAGE, complete_name
from training.errors import UserError

PORTS = 50
LAST_PORT = 65535
END_SECONDS = 1.5
TRAINING = "workflowType=machine_learning"  # without it, MLflow opens on traces of language models
RUNS = f"/#/experiments?{TRAINING}"


def ui(
    name: Annotated[
        str | None, typer.Argument(help="The sweep to open. Default: the latest.", autocompletion=complete_name)
    ] = None,
    tracking_uri: TrackingUri = TRACKING_URI,
    storage: Storage = STORAGE,
    port: Annotated[int, typer.Option(help="Port; if it is in use, the next free one is used.")] = 5000,
) -> None:
    """Open a sweep in the MLflow UI on 127.0.0.1, for the store that sweeps log to."""
    uri = absolute_uri(tracking_uri)
    check_database(uri)
    if uri.startswith(("http", "databricks")):
        print(f"{mask_secrets(uri)} is a tracking server and has its own UI: open it in a browser.")
        return
    if (file := sqlite_file(uri)) and not file.exists():
        raise UserError(f"--tracking-uri={uri}: no such database. Start a sweep first, or go where one was started.")
    free = find_free_port(port)
    page = find_page(name, storage.absolute(), uri)
    used = "" if free == port else f"Port {port} is in use. "
    print(f"{used}Starting the MLflow UI on port {free} …", flush=True)
    # One web worker serves one user; by default, MLflow starts four, and six processes for jobs that no sweep has.
    command = [sys.executable, "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(free), "--workers", "1"]
    # Without an application folder, uvicorn puts the working folder on its path; this one is there already.
    command += ["--uvicorn-opts", f"--log-level=warning --app-dir={shlex.quote(sysconfig.get_path('stdlib'))}"]
    # The address may contain a password, and every user of the machine can read arguments, so it is not an argument.
    more = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    more["PYTHONSAFEPATH"] = "1"  # nothing is imported from the working folder, where files of a stranger may lie
    threading.Thread(target=_announce, args=(f"http://127.0.0.1:{free}", page), daemon=True).start()
    if code := run_group(command, more):
        raise UserError(f"The MLflow UI ended with exit code {code}; its last lines are above.")


def find_page(name: str | None, storage: Path, uri: str) -> str:
    """Return the page of a sweep's runs; that of all experiments, if no sweep is named and the latest is not in the store."""
    from ledger.events import RunOpened
    from ledger.folder import find_latest, open_folder
    from ledger.record import SweepRecord

    try:
        record = SweepRecord.open(open_folder(storage, name) if name else find_latest(storage), only_shown=True)
    except UserError:
        if name:
            raise
        return RUNS
    opened = [event for event in record.events if isinstance(event, RunOpened)]
    if opened and record.recorded_settings.tracking_uri == mask_secrets(uri):
        condition = quote(f"tags.sweep_id = '{record.header.id}'")
        return f"/#/experiments/{quote(opened[-1].experiment)}/runs?{TRAINING}&searchFilter={condition}"
    if name:
        raise UserError(
            f"{name}: {mask_secrets(uri)} does not have its runs. Name their store: sweep ui {name} --tracking-uri URI."
        )
    return RUNS


def _announce(address: str, page: str) -> None:
    while True:
        with suppress(OSError):
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            print(f"MLflow UI: {address}{page} (Ctrl-C ends it)", flush=True)
            return
        time.sleep(0.2)


def run_group(command: list[str], more: Mapping[str, str] | None = None) -> int:
    """Run a command and the processes that it starts until it ends or Ctrl-C; all of them have then ended.

    `more` is added to the environment. Returns its exit code; 0 after Ctrl-C.
    """
    server = subprocess.Popen(command, start_new_session=True, env=os.environ | dict(more or {}))
    try:
        with until_ctrl_c():
            return server.wait()
        return 0
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):  # all processes have ended
                os.killpg(server.pid, number)
            with suppress(subprocess.TimeoutExpired):
                server.wait(END_SECONDS)


def find_free_port(first: int) -> int:
    """Return the first free port, starting at `first`."""
    if not 1 <= first <= LAST_PORT:
        raise UserError(f"--port={first}: a port is a number from 1 to {LAST_PORT}. The default is 5000.")
    last = min(first + PORTS - 1, LAST_PORT)
    for port in range(first, last + 1):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise UserError(f"--port={first}: no port from {first} to {last} can be opened. Name another.")
