"""Choose the fork server from which Ray's workers on this machine begin in a moment: the driver's own, or a raylet's."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import socket
import sys
import tempfile
from functools import cache
from pathlib import Path

from search.runner.machines import fork_client
from search.runner.machines.fork_server import PRIVATE
from search.runner.worker import project_root

SWITCH = "TECHNIQUE_SEARCH_FORK_SERVER"  # 0 starts each worker from nothing, as Ray does


@cache
def start_fork_server(*modules: str) -> str:
    """Start a server that ends with this process. Returns the command that runs a script by it, or "" without one.

    It imports `modules`, or what every trial needs.
    """
    if not _can_fork():
        return ""
    path = str(Path(tempfile.mkdtemp(prefix="technique-search-"), PRIVATE))  # only this user may enter the folder
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(path)
        except OSError as error:  # the path is longer than sockets allow
            os.rmdir(os.path.dirname(path))
            logging.getLogger("search").debug("%s: %s", path, error)
            return ""
        listener.listen(socket.SOMAXCONN)
        # This process never closes the other end, so it closes when this process ends.
        fork_client.start_server(listener, os.pipe()[0], path, *modules)
    return _run_by(path)


def name_fork_server() -> str:
    """Return the command that runs a script by the fork server of a raylet here, or "" without one.

    The first worker of the raylet starts it. Its name changes with the code, so that workers have that of their driver.
    """
    if not _can_fork():
        return ""
    folders = (Path(project_root(), room) for room in ("training", "search/runner"))
    sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
    libraries = [Path(path) for path in sys.path if Path(path).name == "site-packages"]
    code = [sys.executable, *((str(path), path.stat().st_mtime_ns) for path in (*sources, *libraries))]
    return _run_by(f"fork-{hashlib.sha256(json.dumps(code).encode()).hexdigest()[:8]}")


def _can_fork() -> bool:
    return sys.platform == "linux" and os.environ.get(SWITCH) != "0"


def _run_by(server: str) -> str:
    return shlex.join([sys.executable, "-I", "-S", fork_client.__file__, server])
