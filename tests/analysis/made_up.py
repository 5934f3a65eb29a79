"""A simulated sweep: its ledger as a driver would write it, and a copy of it in an MLflow store."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ledger.events import AnyEvent, SweepStarted, encode
from ledger.file import first_line
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.core.asha import Decision
from search.core.controller import Controller
from search.tracking.writer import Tracking
from training.loop.epoch_report import Report

# Where an export comes from, if its training was outside a sweep.
OUTSIDE = {"sweep": None, "trial": None, "mlflow_run_id": None, "test": None, "trained_on": "train"}

EXPERIMENT = "technique-search"
START = 1_700_000_000.0
SPACE = """
format: 1
recipe:
  data: {name: digits}
  epochs: 9
  unfreeze: {level: {choice: [last, most, full]}}
  mixup: {choice: [{alpha: 0.0}, {alpha: {log_uniform: [0.1, 2.0]}}]}
  label_smoothing: {choice: [{alpha: 0.0}, {alpha: {uniform: [0.01, 0.3]}}]}
  optimizer: {name: momentum, lr: {log_uniform: [0.003, 0.3]}}
search: {trials: 30, sampler: random, scheduler: {name: asha}}
"""
LABEL_SMOOTHING, MIXUP = 0.06, -0.05  # planted effects
DIVERGES = 0.08  # learning rates from this value on diverge


@dataclass
class Memory:
    """A ledger without a file, whose clock is set by hand."""

    events: list = field(default_factory=list)
    path: Path = Path("memory")
    time: float = START

    def append(self, event: AnyEvent) -> AnyEvent:
        # The controller folds its own event; only what is sent to MLflow has the time of this clock.
        self.events.append(event.model_copy(update={"time": self.time}))
        return self.events[-1]


def simulate(space, seed: int = 0) -> Memory:
    """Return the ledger of a sweep with one worker and one epoch per second."""
    ledger, rng = Memory(), np.random.default_rng(seed)
    controller = Controller(space, ledger, seed=seed)
    while trial := controller.propose():
        recipe = trial.recipe
        lr = recipe.optimizer.lr
        worth = LABEL_SMOOTHING * (recipe.label_smoothing.alpha > 0) + MIXUP * (recipe.mixup.alpha > 0)
        final = 0.8 + worth - 0.03 * np.log10(lr / 0.03) ** 2 + rng.normal(0, 0.004)
        best = 0.0
        for epoch in range(1, trial.epochs + 1):
            ledger.time += 1
            if lr > DIVERGES and epoch > 1:
                controller.end(trial.number, "diverged", "the training loss is nan")
                break
            score = 0.2 + (final - 0.2) * (1 - np.exp(-5 * epoch / trial.epochs)) + rng.normal(0, 0.003)
            best = max(best, score)
            metrics = {"val_accuracy": score, "val_ece": 0.02 + 0.1 / epoch, "train_loss": 1 / epoch}
            metrics |= {"train_seconds": float(epoch), "peak_memory_mb": 300.0 + trial.number, "val_loss": 1 / epoch}
            report = Report(epoch, metrics, best, 0.01, epoch, [], ledger.time)
            if controller.report(trial.number, report) is Decision.STOP:
                break
    return ledger


def make_header(name: str, space) -> SweepStarted:
    return SweepStarted(time=START, name=name, id=name, space=space.to_yaml(), settings=Settings())


def write(storage: Path, name: str, space, events: list) -> Path:
    """Write the ledger of a sweep, and return it."""
    folder = SweepFolder(storage / name)
    folder.path.mkdir()
    folder.ledger.write_bytes(b"".join([first_line(START), *map(encode, [make_header(name, space), *events])]))
    return folder.ledger


def send(uri: str, name: str, space, events: list, state: str = "completed", ledger: Path | None = None) -> None:
    """Send a sweep to a store, with its ledger if one is given."""
    made = Tracking(uri, EXPERIMENT, sweep=name, sweep_id=name, metric=space.search.metric, ledger=ledger)
    made.start()
    made.wait_ready()
    made.replay([make_header(name, space), *events])
    assert made.close(state) == 0
