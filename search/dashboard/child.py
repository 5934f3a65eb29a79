"""The process of `sweep run --dashboard` that serves the page: `python -m search.dashboard.child FOLDER SOCKET FILE...`."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

from search.dashboard.serve import make_server
from search.dashboard.sources import FolderSource
from search.storage.folder import SweepFolder
from training.own import load


def main() -> None:
    """Serve the sweep until the parent ends."""
    folder, number, *files = sys.argv[1:]
    load(files)
    listener = socket.socket(fileno=int(number))
    server = make_server(FolderSource(SweepFolder(Path(folder)), files), listener, "")

    def end_with_parent() -> None:
        sys.stdin.buffer.read()  # the parent holds the other end and writes nothing
        server.should_exit = True

    threading.Thread(target=end_with_parent, daemon=True).start()
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
