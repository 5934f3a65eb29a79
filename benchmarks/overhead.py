"""The parts of the demo's time, and the time of the same search written by hand as in the libraries' documentation.

    python benchmarks/overhead.py [--rounds 2] [--skip-by-hand] [--json FILE]

The hand-written searches have the same search parameters, the same number of trials, workers and threads, and no early
baselines. Runs are interleaved; times are seconds of wall clock with the spread over the rounds. Set-up (the
environment, and the pretraining on letters, which is cached) is not counted on either side. Needs no network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from ledger.file import read_events
from ledger.trials import Trials
from search.cli.inspect.mlflow_ui import find_free_port
from training.contract.specs import Backbone
from training.model.letters import letters_weights

SWEEP = Path(sys.executable).parent / "sweep"
BY_HAND = {
    "Ray Tune by hand, workers reused": ["by_hand_ray.py", "--reuse"],
    "Ray Tune by hand, as in the documentation": ["by_hand_ray.py"],
    "Optuna by hand, two processes": ["by_hand_optuna.py"],
}


DEMO, READY = "sweep run quick", "sweep run quick, with a Ray that is up"


def run_demo(address: str = "local") -> dict[str, object]:
    """Run `sweep run quick` once in a new folder, and split its time by the ledger's events."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        options = () if address == "local" else ("--address", address)
        done = subprocess.run([SWEEP, "run", "quick", *options], cwd=folder, capture_output=True, text=True)
        ended = time.time()
        if done.returncode:
            raise SystemExit(f"sweep run quick failed:\n{done.stdout}\n{done.stderr}")
        events = list(read_events(Path(folder) / "sweeps" / "quick-1" / "ledger.jsonl"))
        statuses = count_statuses(f"sqlite:///{folder}/mlflow.db")
    driver = next(event for event in events if event.event == "driver")
    close = next(event for event in events if event.event == "close")
    runs = next(event for event in events if event.event == "runs")
    trials = list(Trials("val_accuracy", events))
    seconds = driver.seconds
    span = close.time - min(trial.started for trial in trials)
    warm = [trial for trial in trials if trial.started > min(t.ended or 0 for t in trials)]
    return {
        "total": ended - began,
        "until the first epoch begins": min(
            trial.reports[0].time - trial.reports[0].worker_seconds for trial in trials if trial.reports
        )
        - began,
        "command and checks": driver.time - began - sum(seconds.values()),
        "Ray start": seconds["ray"],
        "further preparation": seconds["preparation"],
        "waiting for the store": seconds["store"],
        "first worker's imports": min(
            trial.reports[0].time - trial.reports[0].worker_seconds for trial in trials if trial.reports
        )
        - min(trial.started for trial in trials),
        "trials, with imports": span,
        "MLflow: rest": runs.time - close.time,
        "leaderboard, export, exit": ended - runs.time,
        "per warm trial beyond training": mean(
            (trial.ended or 0) - trial.started - trial.reports[-1].worker_seconds for trial in warm if trial.reports
        ),
        "best": max(trial.score for trial in trials if trial.score is not None),
        "epochs": sum(trial.epoch for trial in trials),
        "statuses": statuses,
    }


@contextmanager
def kept_up() -> Iterator[str]:
    """Keep a Ray up, whose workers come from a process that has the imports, and return its address."""
    port = find_free_port(21_000)
    command = [SWEEP.with_name("ray"), "start", "--head", f"--port={port}", "--include-dashboard=false", "--block"]
    ray = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(20)
    try:
        run_demo(f"127.0.0.1:{port}")  # its first worker starts that process
        yield f"127.0.0.1:{port}"
    finally:
        ray.terminate()
        ray.wait()


def run_by_hand(script: str, *options: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        command = [sys.executable, str(Path(__file__).parent / script), folder, *options]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        total = time.time() - began
        if done.returncode:
            raise SystemExit(f"{command} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return {"total": total, **json.loads((Path(folder) / "result.json").read_text())}


def count_statuses(uri: str) -> list[str]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, "attributes.status != 'x'", max_results=1000)
    return [run.info.status for run in runs if "mlflow.parentRunId" in run.data.tags]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-by-hand", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    letters_weights(Backbone(name="test_resnet", weights="letters"))
    results: dict[str, list[dict]] = {}
    with kept_up() as address:
        for _ in range(arguments.rounds):
            results.setdefault(DEMO, []).append(run_demo())
            results.setdefault(READY, []).append(run_demo(address))
            if not arguments.skip_by_hand:
                for way, words in BY_HAND.items():
                    results.setdefault(way, []).append(run_by_hand(*words))
    show(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


def show(results: dict[str, list[dict]]) -> None:
    console = Console()
    base = mean(run["total"] for run in results[DEMO])
    columns = ("method", "seconds", "× the demo", "best score", "epochs trained", "runs in MLflow")
    table = Table(*columns, title="16 trials, 20 digits")
    for way, runs in results.items():
        totals = [run["total"] for run in runs]
        statuses = ", ".join(f"{count} {name}" for name, count in Counter(runs[-1]["statuses"]).items())
        epochs = "-".join(
            str(epochs) for epochs in sorted({min(r["epochs"] for r in runs), max(r["epochs"] for r in runs)})
        )
        best = f"{mean(run['best'] for run in runs):.1%}"
        table.add_row(way, f"{min(totals):.0f}-{max(totals):.0f}", f"{mean(totals) / base:.2f}", best, epochs, statuses)
    console.print(table)
    split = Table("part of the demo", "seconds", "seconds with a Ray that is up", title="Parts of the demo's time")
    for part in (name for name, value in results[DEMO][0].items() if isinstance(value, float) and name != "best"):
        values = [[run[part] for run in results[way]] for way in (DEMO, READY)]
        split.add_row(part, *(f"{min(each):.2f}-{max(each):.2f}" for each in values))
    console.print(split)


if __name__ == "__main__":
    main()
