"""Sweeps that share a cluster of three nodes, with everything that they depend on; each part can be killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.sweep_scene.servers import MlflowServer, Postgres, find_postgres, wait_until
from ledger.events import AnyEvent
from ledger.file import read_events

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

NODES = 3
DRAIN_SECONDS = 20  # time between the notice and the end of a node
SPACE = """
format: 1
recipe:
  data: {{name: digits, train_size: 60}}
  backbone: {{name: test_resnet, weights: none}}
  epochs: 9
  unfreeze: {{level: {{choice: [last, most, full]}}}}
  optimizer: {{name: momentum, lr: {{log_uniform: [0.003, 0.3]}}}}
search: {{trials: {trials}}}
"""


class Driven:
    """One sweep of a scene, and its driver; `kept` is what its ledger had when the last driver was killed."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene, self.name = scene, name
        self.kept: list[AnyEvent] = []

    @property
    def ledger(self) -> Path:
        return self.scene.home / "sweeps" / self.name / "ledger.jsonl"

    @property
    def copied_ledger(self) -> Path:
        return self.scene.store / self.name / "ledger.jsonl"

    @property
    def log(self) -> Path:
        return self.scene.folder / f"{self.name}.log"

    def events(self) -> list[AnyEvent]:
        return list(read_events(self.ledger)) if self.ledger.exists() else []

    def has_ended(self) -> bool:
        return self.driver.poll() is not None

    def undelivered(self) -> int:
        """Number of events that the last driver could not send to MLflow."""
        return next((event.undelivered for event in reversed(self.events()) if event.event == "runs"), 0)

    def start(self) -> None:
        wait_until(self.scene.server.answers, "an answer of the MLflow server")
        store = self.scene.store.as_uri()
        arguments = ["run", "chaos.yaml", "--name", self.name, "--tracking-uri", self.scene.server.uri]
        arguments += ["--copy-to", store]
        if self.ledger.exists():
            arguments = ["resume", self.name]
        elif self.copied_ledger.exists():
            arguments = ["resume", self.name, "--from", store]
        arguments += ["--address", self.scene.cluster.address]
        log = self.log.open("a")
        self.driver = subprocess.Popen([*self.scene.command, *arguments], cwd=self.scene.home, stdout=log, stderr=log)

    def restart(self) -> None:
        """Restart a driver that ended by itself, and print its output, which shows the fault."""
        print(self.log.read_text()[-2000:], file=sys.stderr, flush=True)
        self.start()

    def kill(self) -> None:
        self.driver.kill()
        self.driver.wait()


class Scene:
    """The sweeps copy themselves to a store, from which they go on when the head node is lost with all their files."""

    def __init__(self, folder: Path, sweeps: int, trials: int, fast: bool, with_postgres: bool) -> None:
        self.folder, self.home = folder, folder / "head"
        self.home.mkdir()
        self.command = (
            [sys.executable, str(Path(__file__).parents[1] / "fast_trainer.py")]
            if fast
            else [str(Path(sys.executable).parent / "sweep")]
        )
        self.trials, self.with_postgres = trials, with_postgres
        self.store = folder / "store"
        self.sweeps = [Driven(self, f"chaos-{number}") for number in range(sweeps)]
        self.nodes: list[Any] = []
        self.parts = ExitStack()

    def __enter__(self) -> Scene:
        # The workers read this. Shorter epochs would end the sweep before its kills.
        os.environ.setdefault("FAST_EPOCH_SECONDS", "0.7")
        (self.home / "chaos.yaml").write_text(SPACE.format(trials=self.trials))
        with ExitStack() as parts:  # if a later part fails to start, the parts before it are ended
            self.postgres = self._start_postgres(parts) if self.with_postgres else None
            database = self.postgres.uri if self.postgres else f"sqlite:///{self.folder}/server.db"
            self.server = MlflowServer(self.folder, database)
            parts.callback(lambda: self.server.kill())
            self.start_cluster()
            parts.callback(lambda: self.cluster.shutdown())
            for sweep in self.sweeps:
                sweep.start()
                parts.callback(sweep.kill)
            self.parts = parts.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.parts.close()

    def _start_postgres(self, parts: ExitStack) -> Postgres | None:
        if (programs := find_postgres()) is None:
            return None
        home = Path(tempfile.mkdtemp(dir="/tmp")) / "postgres"  # its user must be able to enter the folder
        home.parent.chmod(0o755)
        parts.callback(shutil.rmtree, home.parent, ignore_errors=True)
        started = Postgres(programs, home)
        parts.callback(started.kill)
        return started

    def count_reports(self) -> int:
        return sum(event.event == "report" for sweep in self.sweeps for event in sweep.events())

    def have_ended(self) -> bool:
        return all(sweep.has_ended() for sweep in self.sweeps)

    def start_cluster(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(NODES - 1)]

    def kill_driver(self) -> None:
        """End the driver of the sweep that has had the fewest reports of those that run."""
        running = [sweep for sweep in self.sweeps if not sweep.has_ended()]
        sweep = min(running, key=lambda sweep: len(sweep.events()))
        sweep.kill()
        sweep.kept = sweep.events()
        sweep.start()

    def kill_head(self) -> None:
        """Lose the cluster, the drivers that run and every file of their sweeps except the copies in the store."""
        running = [sweep for sweep in self.sweeps if not sweep.has_ended()]
        for sweep in running:
            sweep.kill()
        self.cluster.shutdown()
        for sweep in running:
            shutil.rmtree(sweep.ledger.parent, ignore_errors=True)
        self.start_cluster()
        for sweep in running:
            sweep.kept = list(read_events(sweep.copied_ledger)) if sweep.copied_ledger.exists() else []
            sweep.start()

    def kill_worker(self) -> None:
        for worker in self._await_workers()[:1]:
            worker.kill()

    def kill_sigterm(self) -> None:
        """Evict a worker."""
        for worker in self._await_workers()[:1]:
            worker.terminate()

    def kill_node(self) -> None:
        self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)
        self.nodes.append(self.cluster.add_node(num_cpus=1))

    def kill_join(self) -> None:
        """Let a node join, and lose another one only when the new one is there."""
        self.nodes.append(self.cluster.add_node(num_cpus=1))
        self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)

    def kill_drain(self) -> None:
        """Give a node notice, as a spot market does, and kill it some time later."""
        node = self.nodes.pop(0)
        command = [str(Path(sys.executable).parent / "ray"), "drain-node", "--address", self.cluster.address]
        command += ["--node-id", node.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
        command += ["--reason-message", "spot", "--deadline-remaining-seconds", str(DRAIN_SECONDS)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        self.nodes.append(self.cluster.add_node(num_cpus=1))
        time.sleep(DRAIN_SECONDS)
        self.cluster.remove_node(node, allow_graceful=False)

    def kill_server(self) -> None:
        self.server.kill()
        time.sleep(2)
        self.server.start()

    def kill_postgres(self) -> None:
        assert self.postgres is not None
        self.postgres.kill()
        time.sleep(2)
        self.postgres.start()

    def _await_workers(self) -> list[psutil.Process]:
        wait_until(lambda: find_workers() or self.have_ended(), "a worker")
        return find_workers()


PATIENCE = 200  # seconds for a command of Ray on a busy machine


def find_workers() -> list[psutil.Process]:
    """Return the Ray workers of this cluster that run trials; its nodes are children of this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if re.match(r"ray::.+\.train", " ".join(process.cmdline())):  # ray::SWEEP.train
                found.append(process)
    return found
