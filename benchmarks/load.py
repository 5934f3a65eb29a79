"""Time of `analysis.load` on the ledger of many trials, compared with MLflow's client on the runs of the same trials."""

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
from search.tracking.writer import Tracking
from spaces.load import load_space

NAME, EXPERIMENT, METRIC = "big", "technique-search", "val_accuracy"
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


def time_load(**place: str | Path) -> float:
    began = time.perf_counter()
    sweep = load(NAME, **place)  # type: ignore[arg-type]
    took = time.perf_counter() - began
    print(f"{place}: {len(sweep.trials):,} trials, {len(sweep.curves):,} epochs in {took:.1f} s")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=200, help="trials that are in MLflow too")
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for count in (args.runs, args.trials):
            folder = SweepFolder(Path(home, str(count), NAME))
            folder.path.mkdir(parents=True)
            with folder.ledger.open("wb") as file:
                file.writelines([first_line(0.0), *map(encode, make_events(count, args.epochs))])
        uri = f"sqlite:///{home}/mlflow.db"
        tracking = Tracking(uri, EXPERIMENT, sweep=NAME, sweep_id=NAME, metric=METRIC)
        tracking.start()
        tracking.wait_ready()
        tracking.replay(make_events(args.runs, args.epochs))
        tracking.close("completed")
        client = time_load(tracking_uri=uri)
        ours = time_load(storage=Path(home, str(args.runs)))
        print(f"MLflow's client takes {client / ours:.0f} times as long for {args.runs:,} trials.")
        time_load(storage=Path(home, str(args.trials)))


if __name__ == "__main__":
    main()
