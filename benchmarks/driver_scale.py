"""What one driver costs at scale: the real controller, ledger and MLflow writer, with trials that take no time.

    python benchmarks/driver_scale.py --trials 1000 --workers 64 --epochs 30

prints the CPU time of a proposal and of a report, how far MLflow is behind, the memory, and the time of a resume, of
`sweep show` and of `sweep report`. With `--rate 100` reports come at that rate, as from real trainings; without it they
come as fast as the driver takes them, so MLflow falls behind.
"""

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from pathlib import Path

import numpy as np

from ledger.events import SweepClosed
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from ledger.trials import Trial
from search.core.asha import Decision
from search.core.controller import Controller
from search.runner.sweep import create_folder, make_header
from search.tracking.writer import Tracking
from spaces.load import load_space
from training.loop.epoch_report import Report

EXPERIMENT = "technique-search"
METRICS = ("val_accuracy", "val_loss", "val_ece", "train_loss", "train_accuracy", "lr", "images_per_second")
METRICS += ("peak_memory_mb", "train_seconds", "evaluation_seconds", "checkpoint_seconds", "val_macro_f1")
STEPS = 10  # points of the learning rate in one report


def make_report(trial: Trial, epoch: int, rng: np.random.Generator) -> Report:
    """A learning curve that depends on the recipe: a better rate ends higher."""
    rate = trial.recipe.optimizer.lr
    quality = math.exp(-abs(math.log10(float(rate)) + 1.5) / 2) if isinstance(rate, float) else 0.5
    score = float(quality * (1 - 0.7 ** (epoch + 1)) + rng.normal(0, 0.01))
    best = max([score, *(report.score for report in trial.reports)])
    steps = [(epoch * STEPS + step, 0.1, 1.0) for step in range(STEPS)]
    metrics = dict.fromkeys(METRICS, 0.5) | {"val_accuracy": score}
    return Report(epoch, metrics, best, 0.02, epoch, steps, time.time())


class Clock:
    """CPU seconds of each call of one kind."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __enter__(self) -> None:
        self.began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds.append(time.thread_time() - self.began)

    def describe(self) -> str:
        last = self.seconds[-max(1, len(self.seconds) // 10) :]
        return f"{1000 * np.mean(self.seconds):.2f} ms mean, {1000 * np.mean(last):.2f} ms in the last tenth"


def drive(
    controller: Controller, workers: int, rate: float | None, late: list[float], tracking: Tracking
) -> dict[str, Clock]:
    """Run all trials: each worker reports one epoch in turn, and asks when its trial has ended."""
    rng, clocks, running = np.random.default_rng(0), {"ask": Clock(), "report": Clock()}, deque[Trial]()
    reports, began = 0, time.monotonic()
    while True:
        while len(running) < workers:
            with clocks["ask"]:
                trial = controller.next_trial()
            if trial is None:
                clocks["ask"].seconds.pop()  # not a proposal
                break
            running.append(trial)
        if not running:
            return clocks
        trial = running.popleft()
        report = make_report(trial, trial.epoch + 1, rng)
        with clocks["report"]:
            decision = controller.report(trial.number, report)
        if decision is Decision.CONTINUE and trial.state == "running":
            running.append(trial)
        reports += 1
        if reports % 100 == 0:
            late.append(tracking.backlog * (time.monotonic() - began) / reports)
        if rate:
            time.sleep(max(0.0, began + reports / rate - time.monotonic()))


def measure(command: list[str], folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run([str(Path(sys.executable).parent / "sweep"), *command], cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rate", type=float, help="reports per second")
    parser.add_argument("--space", default="card")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = SweepFolder(Path(home) / "sweeps" / "big")
        uri = f"sqlite:///{home}/mlflow.db"
        space = load_space(args.space, [f"epochs={args.epochs}", f"search.trials={args.trials}", "data={name: digits}"])
        header = make_header("big", uuid.uuid4().hex, space, Settings(uri, EXPERIMENT))
        create_folder(folder, header)
        tracking = Tracking(
            uri, EXPERIMENT, sweep="big", sweep_id=header.id, metric=space.search.metric, ledger=folder.ledger
        )
        tracking.start()
        tracking.wait_ready()
        tracking.replay([header])
        controller = Controller(space, Ledger(folder.ledger), listeners=[tracking])
        late: list[float] = []
        began, cpu = time.monotonic(), time.process_time()
        clocks = drive(controller, args.workers, args.rate, late, tracking)
        controller.record(SweepClosed(state="completed"))
        ran = time.monotonic() - began
        tracking.close("completed", timeout_seconds=3600)
        drained, used = time.monotonic() - began - ran, time.process_time() - cpu
        reports = len(clocks["report"].seconds)
        print(f"{args.trials} trials, {reports} reports, {args.workers} workers, space {args.space}")
        print(f"ask: {clocks['ask'].describe()}")
        print(f"report: {clocks['report'].describe()}")
        print(f"MLflow: at most {max(late, default=0):.0f} s behind, {drained:.0f} s after the last trial")
        print(
            f"driver: {ran:.0f} s, {used:.0f} s of CPU, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
        )
        began = time.monotonic()
        Controller(space, Ledger(folder.ledger))
        print(
            f"resume: {time.monotonic() - began:.1f} s to read the ledger of {folder.ledger.stat().st_size >> 20} MiB"
        )
        print(f"sweep show: {measure(['show', 'big'], Path(home)):.1f} s")
        print(f"sweep report: {measure(['report', 'big', '--from', uri], Path(home)):.1f} s")


if __name__ == "__main__":
    main()
