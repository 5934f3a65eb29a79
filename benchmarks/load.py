"""Time of `analysis.load` on the ledger of many trials."""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from analysis.loading import load
from ledger.events import AnyEvent, EpochReported, SweepStarted, TrialEnded, TrialStarted, encode
from ledger.file import first_line
from ledger.folder import SweepFolder
from ledger.settings import Settings
from spaces.load import load_space

NAME, METRIC = "big", "val_accuracy"
METRICS = (METRIC, "val_balanced_accuracy", "val_macro_f1", "val_loss", "val_ece", "train_loss", "train_accuracy")
METRICS += ("lr", "images_per_second", "peak_memory_mb", "train_seconds")


def make_events(trials: int, epochs: int) -> Iterator[AnyEvent]:
    space, rng = load_space("quick"), np.random.default_rng(0)
    yield SweepStarted(name=NAME, id=NAME, space=space.to_yaml(), settings=Settings())
    recipe = space.baselines()[0]
    for trial in range(trials):
        yield TrialStarted(trial=trial, recipe=recipe, params=None, origin="sampler")
        for epoch in range(1, epochs + 1):
            metrics = dict(zip(METRICS, rng.random(len(METRICS)).tolist(), strict=True))
            score = {"score": metrics[METRIC], "standard_error": 0.01, "best_epoch": epoch}
            yield EpochReported(trial=trial, epoch=epoch, metrics=metrics, **score)
        yield TrialEnded(trial=trial, state="completed")


def time_load(storage: Path) -> None:
    began = time.perf_counter()
    sweep = load(NAME, storage=storage)
    print(f"{len(sweep.trials):,} trials, {len(sweep.curves):,} epochs in {time.perf_counter() - began:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = SweepFolder(Path(home, NAME))
        folder.path.mkdir()
        with folder.ledger.open("wb") as file:
            file.writelines([first_line(0.0), *map(encode, make_events(args.trials, args.epochs))])
        time_load(Path(home))


if __name__ == "__main__":
    main()
