"""CPU time of the page that follows a large running sweep: the first one, later ones, and one without news."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ledger.events import AnyEvent, DriverStarted, EpochReported, TrialEnded, TrialStarted
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.evaluation.follow import Follower, read_folder
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from spaces.parameters.draws import RandomTrial
from training.errors import UserError
from training.recipe import read_recipe

METRICS = {
    "val_loss": 0.5,
    "train_loss": 0.4,
    "lr": 0.01,
    "train_seconds": 12.5,
    "peak_memory_mb": 2100.0,
    "val_ece": 0.03,
}


def draw_recipes(space, number):
    """Return random recipes of a space; a few hundred different ones are enough."""
    found, seed = [], 0
    while len(found) < min(number, 300):
        seed += 1
        try:
            found.append(read_recipe(space.suggest(RandomTrial(seed))))
        except UserError:  # its techniques conflict
            continue
    return [found[n % len(found)] for n in range(number)]


def list_events(space, trials: int) -> list[AnyEvent]:
    """Return the events of trials that all report their whole length; one in seven is completed, the others stopped."""
    rng, now = np.random.default_rng(0), time.time() - 3600
    events: list[AnyEvent] = [DriverStarted(threads=2, slots=8, host="here")]
    baselines = space.baselines()
    for number, recipe in enumerate([*baselines, *draw_recipes(space, trials - len(baselines))]):
        origin = "baseline" if number < len(baselines) else "sampler"
        events.append(TrialStarted(time=now, trial=number, recipe=recipe, params=None, origin=origin))
        scores = np.maximum.accumulate(0.5 + 0.4 * rng.random(recipe.epochs))
        events += [report(number, epoch, float(score), now) for epoch, score in enumerate(scores, 1)]
        is_full = number < len(baselines) or number % 7 == 0
        events.append(TrialEnded(time=now, trial=number, state="completed" if is_full else "stopped"))
    return events


def report(trial, epoch, score, now):
    return EpochReported(
        time=now, trial=trial, epoch=epoch, score=score, standard_error=0.01, best_epoch=epoch,
        metrics={"val_accuracy": score, **METRICS},
    )  # fmt: skip


def measure(what: str, write: Callable[[], None]) -> None:
    began = time.process_time()
    write()
    print(f"{what}: {time.process_time() - began:.1f} s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    space = load_space("card", [f"epochs={args.epochs}"])
    with tempfile.TemporaryDirectory() as home:
        folder, page = SweepFolder(Path(home, "big")), Path(home, "page.html")
        events = list_events(space, args.trials)
        create_folder(folder, make_header("big", "1", space, Settings()))
        with folder.ledger.open("ab") as file:
            file.write(b"".join(event.model_dump_json().encode() + b"\n" for event in events))
        with folder.locked():
            write = Follower(read_folder(folder), page).write
            measure("the first page, with imports and the whole ledger", write)
            ledger = Ledger(folder.ledger, [])
            for number in range(args.trials, args.trials + 3):
                recipe = draw_recipes(space, 1)[0]
                ledger.append(TrialStarted(trial=number, recipe=recipe, params=None, origin="sampler"))
                ledger.append(report(number, 1, 0.7, time.time()))
                measure("a page after new reports", write)
                ledger.append(TrialEnded(trial=number, state="stopped"))
                measure("a page after the end of a trial", write)
            measure("a page without news", write)
        print(f"{page.stat().st_size / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
