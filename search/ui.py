"""The MLflow UI over the store that sweeps log to."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from training.errors import UserError

PORTS = 50
RUNS = "/#/experiments?workflowType=machine_learning"  # without it, MLflow opens on traces of language models


def serve_ui(uri: str, port: int) -> None:
    """Serve the UI of a database on 127.0.0.1 until Ctrl-C; of a server, say where it is.

    Raises:
        UserError: there is no such store, or no free port.
    """
    if uri.startswith("http"):
        print(f"{uri} is a tracking server and has its own UI: open it in a browser.")
        return
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise UserError(
            f"--tracking-uri={uri}: no such database. Start a sweep first, or run this where one was started."
        )
    port = find_free_port(port)
    print(f"MLflow UI: http://127.0.0.1:{port}{RUNS} (Ctrl-C ends it)", flush=True)
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        uri,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    os.execv(sys.executable, command)  # Ctrl-C then reaches MLflow itself


def find_free_port(first: int) -> int:
    """The first port from `first` on that nobody listens on."""
    for port in range(first, first + PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise UserError(f"--port={first}: this one and the {PORTS - 1} after it are in use. Name another.")
