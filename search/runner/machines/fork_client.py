"""The Python of Ray's workers on this machine: let the fork server run a script, and end as the script ends.

Ray runs `python -I -S fork_client.py SERVER SCRIPT ARGUMENTS`, so this file imports little and none of our modules.
SERVER is the path of a socket, or a name: the first worker of a raylet then starts a server that lives as long as the
raylet. Without a server the script runs in a Python of its own, as Ray would have done it.
"""

import array
import json
import os
import signal
import socket
import struct
import sys

STANDARD = (0, 1, 2)  # input, output and error


def start_server(listener: socket.socket, owner: int, path: str, *modules: str) -> None:
    """Start a server for the socket at `path`. It ends with its owner: when the file descriptor `owner` is readable."""
    import subprocess  # few workers need it

    files = (listener.fileno(), owner)
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fork_server.py")
    subprocess.Popen(
        [sys.executable, server, *map(str, files), path, *modules],
        pass_fds=files,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the driver
    )
    os.close(owner)


def find_raylets_server(name: str, command: list[str]) -> str:
    """Return the path of the server of this worker's raylet, beside the raylet's own socket; start it if there is none."""
    raylet = next(word.partition("=")[2] for word in command if word.startswith("--raylet-name="))
    path = os.path.join(os.path.dirname(raylet), name)
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.umask(0o177)  # only this user may connect
        try:
            listener.bind(path)
        except OSError:  # an earlier worker has started it
            return path
        finally:
            os.umask(before)
        listener.listen(socket.SOMAXCONN)
        start_server(listener, os.pidfd_open(os.getppid()), path)
    return path


def ask(server: socket.socket, command: list[str]) -> None:
    """Send a command with the environment, the folder and the open files of this process.

    Raises:
        OSError: the server has ended, or another user has taken its place, because all users can write to Ray's folder.
    """
    _, user, _ = struct.unpack("3i", server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.getuid():
        raise PermissionError
    request = {"command": command, "environment": dict(os.environ), "folder": os.getcwd(), "group": os.getpgrp()}
    data = json.dumps(request).encode()
    files = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STANDARD))
    server.sendmsg([len(data).to_bytes(8, "big")], [files])
    server.sendall(data)


def main() -> None:
    place, *command = sys.argv[1:]
    path = place if os.path.isabs(place) else find_raylets_server(place, command)
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
