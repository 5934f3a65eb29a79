"""Start the fork server, from which Ray's workers on this machine begin in a moment."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from search.runner.worker import project_root

SWITCH = "TECHNIQUE_SEARCH_FORK_SERVER"  # 0 starts each worker from nothing, as Ray does


@cache
def start_fork_server(*modules: str) -> str:
    """Start a server that ends with this process. Returns the command that runs a script by it, or "" without one.

    It imports `modules`, or what every trial needs.
    """
    if sys.platform != "linux" or os.environ.get(SWITCH) == "0":
        return ""
    here = Path(__file__).parent
    path = Path(tempfile.mkdtemp(prefix="technique-search-"), "socket")  # only this user may enter the folder
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:  # the path is longer than sockets allow
            path.parent.rmdir()
            logging.getLogger("search").debug("%s: %s", path, error)
            return ""
        listener.listen(socket.SOMAXCONN)
        alive, _ = os.pipe()  # this process never closes the other end, so it closes when this process ends
        files = (listener.fileno(), alive)
        subprocess.Popen(
            [sys.executable, str(here / "server.py"), project_root(), *map(str, files), str(path), *modules],
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the driver
        )
        os.close(alive)
    return shlex.join([sys.executable, "-I", "-S", str(here / "client.py"), str(path)])
