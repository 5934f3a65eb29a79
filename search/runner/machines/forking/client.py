"""The Python of Ray's workers on this machine: let the fork server run a script, and end as the script ends.

Ray runs `python -I -S client.py SOCKET SCRIPT ARGUMENTS`, so this file imports little and none of our modules. Without a
server the script runs in a Python of its own, as Ray would have done it.
"""

import array
import json
import os
import signal
import socket
import sys

STANDARD = (0, 1, 2)  # input, output and error


def ask(server: socket.socket, command: list[str]) -> None:
    """Send a command with the environment, the folder and the open files of this process."""
    request = {"command": command, "environment": dict(os.environ), "folder": os.getcwd(), "group": os.getpgrp()}
    data = json.dumps(request).encode()
    files = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STANDARD))
    server.sendmsg([len(data).to_bytes(8, "big")], [files])
    server.sendall(data)


def main() -> None:
    path, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            ask(server, command)
            answer = server.recv(64)
        except OSError:
            answer = b""
        if not answer:  # no server, or one that may not fork
            os.execv(sys.executable, [sys.executable, *command])
        # While this process lives, the fork lives: the server kills it when this connection closes, and Ray kills this.
        signal.signal(signal.SIGTERM, lambda *_: os.kill(int(answer), signal.SIGTERM))
        code = server.recv(64)
    os._exit(int(code or 1))


if __name__ == "__main__":
    main()
