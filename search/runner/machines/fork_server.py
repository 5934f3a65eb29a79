"""A process that has imported what every trial needs, and forks Ray's workers on this machine.

A worker that starts from nothing imports for 12 CPU seconds (torch, Lightning, timm, torchmetrics); a fork has all of it
at once, and shares the memory of it. `fork_client.py` sends the requests. The server ends with its owner, the driver or
a raylet, or when nobody has needed it for long.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

# Not Ray itself: it reads its settings for a worker from the environment when it is imported.
MODULES = ("training.train", "training.linear_probe")
IDLE_SECONDS = 1800.0
PRIVATE = "socket"  # name of the socket of a driver's own server


@dataclass(frozen=True)
class ForkRequest:
    """A script with its arguments, and the process that wants it run."""

    command: list[str]
    environment: dict[str, str]
    folder: str
    group: int  # Ray kills a worker by its process group
    files: list[int]  # standard input, output and error


def serve(listener: socket.socket, owner: int) -> ForkRequest | None:
    """Fork for each request. Returns the request in each child, and None in the server when it is no longer needed."""
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes the loop
    children: dict[socket.socket, int] = {}
    with selectors.DefaultSelector() as watched:
        for source in (listener, owner, woken):
            watched.register(source, selectors.EVENT_READ)
        while (events := watched.select(IDLE_SECONDS)) or children:
            for key, _ in events:
                ready: object = key.fileobj
                if ready == owner:
                    return None
                if ready == woken:
                    woken.recv(4096)
                    _answer_ended(children, watched)
                elif ready == listener:
                    connection, _ = listener.accept()
                    if (request := _receive(connection)) is None:
                        connection.close()
                    elif (pid := os.fork()) == 0:
                        _leave_server([listener, wake, woken, connection, *children], owner)
                        return request
                    else:
                        for file in request.files:
                            os.close(file)
                        with contextlib.suppress(OSError):  # a client that has gone is noticed below
                            connection.sendall(str(pid).encode())
                        children[connection] = pid
                        watched.register(connection, selectors.EVENT_READ)
                elif ready in children:  # Ray has killed the client, which never writes again
                    watched.unregister(ready)
                    os.kill(children[ready], signal.SIGKILL)
    return None


def _receive(connection: socket.socket) -> ForkRequest | None:
    try:
        size, files, _, _ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as stream:
            return ForkRequest(**json.loads(stream.read(int.from_bytes(size, "big"))), files=files)
    except (OSError, ValueError):
        return None


def _answer_ended(children: dict[socket.socket, int], watched: selectors.BaseSelector) -> None:
    for connection, pid in list(children.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del children[connection]
            with contextlib.suppress(OSError, KeyError):
                watched.unregister(connection)
            with contextlib.suppress(OSError):  # the client may have gone
                connection.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
            connection.close()


def _leave_server(connections: list[socket.socket], owner: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for connection in connections:
        connection.close()
    os.close(owner)


def become(request: ForkRequest) -> None:
    """Run the script of a request in this process, as if Python had been started with it."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    os.setpgid(0, request.group)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # forks would draw the same numbers
    sys.argv = request.command
    sys.path[0] = str(Path(request.command[0]).parent)
    runpy.run_path(request.command[0], run_name="__main__")


def has_used_gpu() -> bool:
    """Return whether this process has opened a GPU of NVIDIA: its forks could not use CUDA then.

    The imports of torch only load the driver's library.
    """
    return any("/dev/nvidia" in str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink())


def main(listener: int, owner: int, path: Path, modules: list[str]) -> None:
    """Import the modules, serve as long as the owner needs it, then remove the socket and a folder of its own."""
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    request: ForkRequest | None = None
    stays = path.name != PRIVATE  # then no worker starts another server that cannot fork either
    try:
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # a collection in a fork would copy the pages of all these objects
        if not has_used_gpu():
            stays = False
            request = serve(socket.socket(fileno=listener), owner)
    finally:
        if request is None and not stays:
            path.unlink()
            with contextlib.suppress(OSError):  # a raylet's folder has other sockets
                path.parent.rmdir()
    if request is not None:
        become(request)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:] or list(MODULES))
