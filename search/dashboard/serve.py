"""Serve the dashboard of one sweep: by itself, or as a child of the command that runs the sweep."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.folder import SweepFolder

if TYPE_CHECKING:
    from rich.console import Console
    from starlette.types import ASGIApp
    from uvicorn import Server

OPEN_SECONDS = 70.0  # a browser lets a hidden page ask once a minute
PORT = 8270
PORTS = 50  # ports that are tried
PAUSE_SECONDS = 0.2  # between two looks at the open pages
LONGEST_END_SECONDS = 120.0  # from the end of a command until its dashboard ends too


class OpenPages:
    """Each page has a number that it chose itself; it is open until it leaves or asks nothing any more."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}

    def note(self, page: str) -> None:
        """Remember that a page has asked now; an empty name is no page."""
        if page:
            self.asked[page] = time.monotonic()

    def leave(self, page: str) -> None:
        """Forget a page that needs nothing any more."""
        self.asked.pop(page, None)

    def count(self) -> int:
        """Return the number of open pages."""
        now = time.monotonic()
        return sum(now - asked < OPEN_SECONDS for asked in list(self.asked.values()))


def _make_server(app: ASGIApp, listener: socket.socket, token: str = "") -> Server:
    """Return a server; with a token only for a browser that has it."""
    from analysis.web_server import make_server
    from search.dashboard.guard import Guard

    return make_server(Guard(app, listener.getsockname()[1], token))


def serve(app: ASGIApp, what: str, listener: socket.socket) -> None:
    """Serve an application until Ctrl-C; `what` says what it shows.

    Beyond loopback, only a browser that has opened the printed address can use it.
    """
    from analysis.web_server import is_loopback

    token = "" if is_loopback(listener.getsockname()[0]) else secrets.token_urlsafe(24)
    server = _make_server(app, listener, token)
    print(f"{what}: {describe_address(listener, token)} (Ctrl-C ends it)", flush=True)
    if token:
        print("Everyone who has this address can change what it shows. The connection is not encrypted.", flush=True)
    server.run(sockets=[listener])


def describe_address(listener: socket.socket, token: str = "") -> str:
    """Return the address to open in a browser."""
    host, port = listener.getsockname()[:2]
    name = socket.gethostname() if ip_address(host.partition("%")[0]).is_unspecified else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/" + (f"?token={token}" if token else "")


@contextmanager
def beside(folder: SweepFolder, files: Sequence[Path], console: Console) -> Iterator[None]:
    """Serve a sweep in a process of its own while the `with` block runs it; `files` have own techniques.

    The process sees the end of the block, or of this process, because it reads from a pipe that this one holds. It
    then ends too, as soon as the open pages have the end of the sweep.
    """
    from analysis.web_server import open_socket

    listener = open_socket("127.0.0.1", PORT, PORTS)
    # -P: the user's folder may have a package that is called `search`.
    command = [sys.executable, "-P", "-m", "search.dashboard.serve", str(folder.path), str(listener.fileno())]
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
        assert child.stdin is not None
        child.stdin.close()
        threading.Thread(target=child.wait, daemon=True).start()  # a notebook goes on, and should keep no zombie


def _serve_for_parent(folder: str, number: str, *files: str) -> None:
    """Serve a sweep with an open socket until the parent ends and the open pages have the end of the sweep."""
    from search.dashboard.app import make_app
    from search.dashboard.live_sweep import LiveSweep
    from training.plugins import load

    load(files)
    listener = socket.socket(fileno=int(number))
    live, pages = LiveSweep(SweepFolder(Path(folder)), files), OpenPages()
    server = _make_server(make_app(live, pages), listener)

    def end_after_parent() -> None:
        sys.stdin.buffer.read()  # the parent holds the other end and writes nothing
        for output in (1, 2):  # a program that reads the output of the command need not wait for this process
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        live.findings.is_last = True
        until = time.monotonic() + LONGEST_END_SECONDS
        while pages.count() and time.monotonic() < until:
            live.refresh()
            live.findings.describe(0)  # begins the last ones
            time.sleep(PAUSE_SECONDS)
        server.should_exit = True

    threading.Thread(target=end_after_parent, daemon=True).start()
    server.run(sockets=[listener])


if __name__ == "__main__":
    _serve_for_parent(*sys.argv[1:])
