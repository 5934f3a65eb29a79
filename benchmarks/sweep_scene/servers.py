"""An MLflow server, and PostgreSQL under it where that is installed. Each can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 600


class Postgres:
    """A server of its own; it refuses to run as root, so root starts it as the user `postgres`."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.programs, self.home, self.port = programs, home, find_free_port()
        self.user: dict[str, Any] = {"user": "postgres"} if os.getuid() == 0 else {}
        home.mkdir()
        if self.user:
            shutil.chown(home, "postgres")
        self._call("initdb", "-D", home / "data", "-U", "sweep", "--auth=trust")
        self.start()
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "sweep"]
        subprocess.run([programs / "createdb", *address, "mlflow"], check=True, capture_output=True)
        self.uri = f"postgresql://sweep@127.0.0.1:{self.port}/mlflow"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self.home}"
        self._call("pg_ctl", "-D", self.home / "data", "-w", "-o", options, "start")

    def kill(self) -> None:
        """End it without saving anything; it recovers from its log when it starts again."""
        self._call("pg_ctl", "-D", self.home / "data", "-w", "-m", "immediate", "stop")

    def _call(self, name: str, *arguments: object) -> None:
        with self.home.with_suffix(".log").open("a") as log:
            command = [str(self.programs / name), *map(str, arguments)]
            subprocess.run(command, cwd=self.home, stdout=log, stderr=log, check=True, timeout=120, **self.user)


def find_postgres() -> Path | None:
    """Return the folder with all of PostgreSQL's programs; links to some of them may be elsewhere."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class MlflowServer:
    """MLflow's own server over a database."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store, self.port = folder, store, find_free_port()
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", self.store]
        log = (self.folder / "server.log").open("a")
        # MLflow's job runner is seven more processes, which a sweep does not use.
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def answers(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self.uri}/health", timeout=2).status == 200)
        except (urllib.error.URLError, OSError):
            return False


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)
