"""Kill a sweep's driver, workers, nodes and tracking server at random, resume each time, and count the faults.

    python benchmarks/chaos.py --kills 20 --seed 0 [--fast] [--json FILE]

The sweep runs on a cluster of two nodes on this machine and logs to an MLflow server. Every kill is a kill -9. `--fast`
trains nothing (see fast_trainer.py); everything else is the real code. It needs no network.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from search.core.controller import Controller
from search.core.trials import Trials
from search.storage.events import AnyEvent
from search.storage.ledger import Ledger, read_events
from spaces.load import load_space

KINDS = ("driver", "worker", "node", "server")
SLOTS = 2
PATIENCE_SECONDS = 600
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


class Scene:
    """A sweep with everything that it depends on; each part can be killed."""

    def __init__(self, folder: Path, trials: int, fast: bool) -> None:
        self.folder = folder
        self.command = (
            [sys.executable, str(Path(__file__).with_name("fast_trainer.py"))]
            if fast
            else [str(Path(sys.executable).parent / "sweep")]
        )
        (folder / "chaos.yaml").write_text(SPACE.format(trials=trials))
        self.ledger = folder / "sweeps" / "chaos" / "ledger.jsonl"
        self.port = find_free_port()
        self.kept: list[AnyEvent] = []
        self.parts = ExitStack()

    def __enter__(self) -> Scene:
        from ray.cluster_utils import Cluster

        # The workers read this. Shorter epochs would end the sweep before its kills.
        os.environ.setdefault("FAST_EPOCH_SECONDS", "0.7")
        with ExitStack() as parts:  # if a later part fails to start, the parts before it are ended
            self.start_server()
            parts.callback(lambda: os.killpg(self.server.pid, signal.SIGKILL))
            self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
            parts.callback(self.cluster.shutdown)
            self.node = self.cluster.add_node(num_cpus=1)
            self.start_driver()
            parts.callback(lambda: self.driver.kill())
            self.parts = parts.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.parts.close()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def events(self) -> list[AnyEvent]:
        return list(read_events(self.ledger)) if self.ledger.exists() else []

    def has_ended(self) -> bool:
        return self.driver.poll() is not None

    def undelivered(self) -> int:
        """Number of events that the last driver could not send to MLflow."""
        return next((event.undelivered for event in reversed(self.events()) if event.event == "runs"), 0)

    def start_server(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        log = (self.folder / "server.log").open("a")
        # MLflow's job runner is seven more processes, which a sweep does not use.
        self.server = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def server_answers(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=2).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def start_driver(self) -> None:
        wait_until(self.server_answers, "an answer of the MLflow server")
        arguments = ["resume", "chaos"] if self.ledger.exists() else ["run", "chaos.yaml", "--name", "chaos"]
        if arguments[0] == "run":
            arguments += ["--address", self.cluster.address, "--tracking-uri", self.uri]
        log = (self.folder / "driver.log").open("a")
        self.driver = subprocess.Popen([*self.command, *arguments], cwd=self.folder, stdout=log, stderr=log)

    def restart_driver(self) -> None:
        """Restart a driver that ended by itself, and print its output, which shows the fault."""
        print((self.folder / "driver.log").read_text()[-2000:], file=sys.stderr, flush=True)
        self.start_driver()

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver.wait()
        self.kept = self.events()
        self.start_driver()

    def kill_worker(self) -> None:
        wait_until(lambda: find_workers() or self.has_ended(), "a worker")
        for worker in find_workers()[:1]:
            worker.kill()

    def kill_node(self) -> None:
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.node = self.cluster.add_node(num_cpus=1)

    def kill_server(self) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()
        time.sleep(2)
        self.start_server()


def run_chaos(folder: Path, kills: list[str], seed: int, fast: bool) -> dict[str, int]:
    """Run a sweep with these kills, and return counts of events and of faults."""
    draw = random.Random(seed)
    # Four trials, about 20 epochs under ASHA, take longer than a kill.
    with Scene(folder, trials=8 + 4 * len(kills), fast=fast) as scene:
        try:
            return _kill_and_count(scene, kills, draw)
        except TimeoutError:
            print((folder / "driver.log").read_text()[-3000:], file=sys.stderr)
            raise


def _kill_and_count(scene: Scene, kills: list[str], draw: random.Random) -> dict[str, int]:
    done: Counter[str] = Counter()
    gave_up = 0
    for kind in kills:
        # A driver may also be killed while it starts.
        in_start = kind == "driver" and draw.random() < 0.3 and scene.ledger.exists()
        enough = count_reports(scene.events()) + draw.randint(2, 8)
        if not in_start:
            wait_until(lambda: scene.has_ended() or count_reports(scene.events()) >= enough, "reports")  # noqa: B023
        time.sleep(draw.uniform(0, 8 if in_start else 0.5))
        if scene.has_ended():
            if scene.driver.returncode == 0:
                break  # the sweep ended before all kills
            gave_up += 1
            scene.restart_driver()
            continue
        getattr(scene, f"kill_{kind}")()
        done[kind] += 1
    wait_until(scene.has_ended, "the end of the sweep", 4 * PATIENCE_SECONDS)
    while scene.driver.returncode != 0 and gave_up < len(kills):
        gave_up += 1
        scene.restart_driver()
        wait_until(scene.has_ended, "the end of the sweep", 4 * PATIENCE_SECONDS)
    late = 0
    while scene.undelivered() and late < 3:  # the server did not answer at the end, and the sweep reported this
        late += 1
        scene.start_driver()
        scene.driver.wait(PATIENCE_SECONDS)
    wait_until(scene.server_answers, "an answer of the MLflow server")
    counts = {"kills": done.total(), **done, "resumed for MLflow alone": late}
    return counts | count_faults(scene, done.total()) | {"drivers that gave up": gave_up}


def count_faults(scene: Scene, kills: int) -> dict[str, int]:
    """Count the differences between the ledger, its replay, the trainers' logs and MLflow, and the processes left."""
    events = scene.events()
    space = load_space(scene.ledger.with_name("space.yaml"))
    trials = Trials(space.search.metric, events)
    arrived = Counter((event.trial, event.epoch) for event in events if event.event == "report")
    replayed = Controller(space, Ledger(scene.ledger))
    begun: Counter[tuple[int, str]] = Counter()
    for trial in trials:
        log = scene.ledger.parent / "trials" / trial.name / "log.txt"
        begun.update(
            (trial.number, line.split("Epoch ")[1]) for line in log.read_text().splitlines() if "Epoch " in line
        )
    twice = begun.total() - len(begun)
    return {
        "epochs trained": len(begun),
        "epochs begun twice": twice,
        "trials expected": space.search.trials,
        "trials found": len(trials),
        "beyond kills × running trials": max(0, twice - kills * SLOTS),
        "reports missing": sum(trial.epoch - sum(number == trial.number for number, _ in arrived) for trial in trials),
        "reports duplicated": arrived.total() - len(arrived),
        "lines of a killed driver changed": int(events[: len(scene.kept)] != scene.kept),
        "wrong end states": sum(
            trial.state != ("completed" if trial.epoch == trial.epochs else "stopped") for trial in trials
        ),
        "decisions that differ from the replay": sum(
            (replayed.decisions[trial.number] == "stop") != (trial.state == "stopped") for trial in trials
        ),
        **count_mlflow_faults(scene.uri, trials),
        "processes left": len(find_workers()),
    }


def count_mlflow_faults(uri: str, trials: Trials) -> dict[str, int]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("technique-search")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    children: dict[str, list[Any]] = {}
    for run in runs:
        children.setdefault(run.data.tags.get("trial", "parent"), []).append(run)
    wrong_states, wrong_steps = int(children["parent"][0].info.status != "FINISHED"), 0
    for trial in trials:
        for run in children.get(trial.name, [])[:1]:
            wrong_states += (run.info.status, run.data.tags["state"]) != ("FINISHED", trial.state)
            history = client.get_metric_history(run.info.run_id, trials.metric)
            wrong_steps += [point.step for point in history] != list(range(1, trial.epoch + 1))
    return {
        "MLflow runs missing": len(trials) + 1 - len(children),
        "MLflow runs duplicated": len(runs) - len(children),
        "MLflow runs in a wrong state": wrong_states,
        "MLflow runs with a missing or duplicated step": wrong_steps,
    }


def find_faults(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts that should be zero but are not."""
    harmless = {"kills", *KINDS, "epochs trained", "epochs begun twice", "trials expected", "trials found"}
    lost = {"trials lost": counts["trials expected"] - counts["trials found"]}
    return {n: c for n, c in (counts | lost).items() if c and n not in harmless | {"resumed for MLflow alone"}}


def count_reports(events: list[AnyEvent]) -> int:
    return sum(event.event == "report" for event in events)


def find_workers() -> list[psutil.Process]:
    """Return the Ray workers of this cluster that run trials; its nodes are children of this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ray::ImplicitFunc" in " ".join(process.cmdline()):
                found.append(process)
    return found


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(true: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="train nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kills = [KINDS[number % len(KINDS)] for number in range(arguments.kills)]
    random.Random(arguments.seed).shuffle(kills)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts = run_chaos(Path(folder), kills, arguments.seed, arguments.fast)
    faults = find_faults(counts)
    table = Table("count", "found", title=f"{counts['kills']} kills in {time.perf_counter() - began:.0f} s")
    for name, count in counts.items():
        table.add_row(name, f"[red]{count}[/]" if name in faults else str(count))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(counts, indent=2))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
