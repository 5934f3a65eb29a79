"""Serve the dashboard of one sweep: by itself, or as a child of the command that runs the sweep."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from search.storage.folder import SweepFolder
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from uvicorn import Server

    from search.dashboard.sources import Source

PORT = 8270
PORTS = 50  # ports that are tried
END_SECONDS = 1.0


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on the first free port, starting at `port`; with `port` 0 on any free one.

    Raises:
        UserError: the host is not one of this machine, or no port is free.
    """
    last = min(port + PORTS, 65536) if port else 1
    for candidate in range(port, last):
        try:
            return socket.create_server((host, candidate), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except PermissionError:
            continue
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno not in (98, 48):  # in use, on Linux and on macOS
                reason = error.strerror or error
                raise UserError(f"--host={host}: this machine cannot listen there ({reason}). Use 127.0.0.1.") from None
    raise UserError(f"--port={port}: no port from {port} to {last - 1} can be opened. Name another.")


def make_server(source: Source, listener: socket.socket, token: str) -> Server:
    """Return the server of a sweep; with a token only for a browser that has it.

    Raises:
        UserError: the sweep cannot be read.
    """
    import uvicorn

    from search.dashboard.app import make_app
    from search.dashboard.guard import Guard

    app = Guard(make_app(source.make_parts()), listener.getsockname()[1], token)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level="warning",
            access_log=False,  # the first address has the token
            timeout_graceful_shutdown=1,
        )
    )


def serve(source: Source, listener: socket.socket) -> None:
    """Serve a sweep until Ctrl-C. Beyond loopback, only a browser that has opened the printed address can use it.

    Raises:
        UserError: the sweep cannot be read.
    """
    is_local = ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
    token = "" if is_local else secrets.token_urlsafe(24)
    server = make_server(source, listener, token)
    print(f"Dashboard of {source.name}: {describe_address(listener, token)} (Ctrl-C ends it)", flush=True)
    if token:
        print("Everyone who has this address can change the sweep. The connection is not encrypted.", flush=True)
    server.run(sockets=[listener])


def describe_address(listener: socket.socket, token: str = "") -> str:
    """Return the address to open in a browser."""
    host, port = listener.getsockname()[:2]
    name = socket.gethostname() if ip_address(host.partition("%")[0]).is_unspecified else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/" + (f"?token={token}" if token else "")


@contextmanager
def beside(folder: SweepFolder, files: Sequence[Path], console: Console) -> Iterator[None]:
    """Serve a sweep in a process of its own while the `with` block runs it; `files` have own techniques.

    The process ends with this one, however that ends, because it reads from a pipe that this one holds.
    """
    listener = open_socket("127.0.0.1", PORT)
    # -P: the user's folder may have a package that is called `search`.
    command = [sys.executable, "-P", "-m", "search.dashboard.child", str(folder.path), str(listener.fileno())]
    console.print(f"Dashboard: {describe_address(listener)}", markup=False)
    child = subprocess.Popen(
        [*command, *map(str, files)],
        stdin=subprocess.PIPE,
        pass_fds=(listener.fileno(),),
        start_new_session=True,  # Ctrl-C is for the sweep alone, which may take a while to end
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    listener.close()
    try:
        yield
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
