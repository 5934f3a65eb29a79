"""Are the presets worth their time? Each of them, and the default recipe, on the same images, over many seeds.

    python benchmarks/presets.py --photos FOLDER [--seeds 5] [--classes 5] [--train 60] [--folder FOLDER]

FOLDER has train/<class>/ and test/<class>/. A seed draws the training images, and is the seed of the split, of the search
and of the trainings. The best trial of each preset is chosen on the validation images, and scored on all test images,
which no search reads. The default recipe has the backbone of the presets. With --folder the sweeps are kept, and a second
call continues an interrupted one. The numbers of trials are fixed, so that a busy machine gives the same result.
A seed takes about three minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

import search
from analysis.effects.seed_intervals import paired_interval
from benchmarks.demo import score_test
from ledger.trials import Trial
from training.recipe import Recipe
from training.train import train

TRIALS = {"fast": 6, "good": 14}  # what a minute and four minutes allow on two idle cores


@dataclass(frozen=True)
class Outcome:
    """One seed of one method: accuracies on validation and test images, and what was trained."""

    val: float
    test: float
    trials: int
    epochs: int


def draw_images(photos: Path, out: Path, classes: int, count: int, seed: int) -> None:
    """Link `count` training images of each class, and all test images, into a folder of their own."""
    names = sorted(path.name for path in (photos / "train").iterdir())[:classes]
    for name in names:
        files = sorted((photos / "train" / name).iterdir())
        for part, chosen in (
            ("train", random.Random(seed).sample(files, count)),
            ("test", sorted((photos / "test" / name).iterdir())),
        ):
            (out / part / name).mkdir(parents=True)
            for file in chosen:
                os.symlink(file.resolve(), out / part / name / file.name)


def run_preset(preset: str, images: Path, seed: int, home: Path) -> tuple[Outcome, Recipe]:
    """Search with a preset, and score its best trial."""
    result = search.run(
        None,
        [f"data.root={images}", f"seed={seed}", f"data.split_seed={seed}", f"search.trials={TRIALS[preset]}"],
        preset=preset,
        name=preset,
        or_resume=True,
        seed=seed,
        storage=home,
        time_budget="2h",
        tracking_uri=f"sqlite:///{home}/mlflow.db",
        console=Console(file=(home / f"{preset}.log").open("a"), width=120),
    )
    best = result.best
    assert best is not None
    test = score_test(home / preset / "trials" / best.name / "best.ckpt")
    epochs = sum(trial.epoch for trial in result.trials)
    return Outcome(best.score or 0.0, test, len(result.trials), epochs), _baseline(result.trials)


def _baseline(trials: list[Trial]) -> Recipe:
    return next(trial.recipe for trial in trials if trial.origin == "baseline")


def train_default(like: Recipe, home: Path) -> Outcome:
    """Train the default recipe on the same images with the same backbone, and score it."""
    recipe = Recipe(data=like.data, backbone=like.backbone, seed=like.seed)
    reports = train(recipe, home).reports
    return Outcome(reports[-1].score, score_test(home / "best.ckpt"), 1, len(reports))


def run_seed(photos: Path, classes: int, count: int, seed: int, home: Path) -> dict[str, Outcome]:
    if not (home / "images").exists():
        draw_images(photos, home / "images", classes, count, seed)
    found = {}
    for preset in TRIALS:
        found[preset], baseline = run_preset(preset, home / "images", seed, home)
    (home / "default").mkdir(exist_ok=True)
    found["default"] = train_default(baseline, home / "default")
    return found


def run_all(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Outcome]]:
    """Run the seeds that the folder does not have yet."""
    outcomes = []
    for seed in range(arguments.seeds):
        kept = folder / f"seed-{seed}.json"
        if not kept.exists():
            found = run_seed(arguments.photos, arguments.classes, arguments.train, seed, folder / f"seed-{seed}")
            kept.write_text(json.dumps({name: asdict(one) for name, one in found.items()}))
        outcomes.append({name: Outcome(**values) for name, values in json.loads(kept.read_text()).items()})
        print(f"seed {seed}: {outcomes[-1]}", flush=True)
    return outcomes


def show(outcomes: list[dict[str, Outcome]], console: Console) -> None:
    """Print the mean of each method, and the differences with their 95 % intervals."""
    table = Table("method", "validation", "test", "trials", "epochs trained")
    scores = {name: [one[name].test for one in outcomes] for name in outcomes[0]}
    for name in scores:
        rows = [one[name] for one in outcomes]
        numbers = (fmean(row.trials for row in rows), fmean(row.epochs for row in rows))
        accuracies = (fmean(row.val for row in rows), fmean(row.test for row in rows))
        table.add_row(name, *(f"{value:.1%}" for value in accuracies), *(f"{value:.0f}" for value in numbers))
    console.print(table)
    if len(outcomes) < 2:
        return
    for one, other in (("good", "fast"), ("good", "default"), ("fast", "default")):
        gain = paired_interval(scores, one, other)
        wins = sum(a > b for a, b in zip(scores[one], scores[other], strict=True))
        console.print(
            f"{one} − {other}: {100 * gain.mean:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}), ahead in "
            f"{wins} of {len(outcomes)} seeds"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--train", type=int, default=60, help="training images of each class, validation included")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        show(run_all(arguments, folder), Console())


if __name__ == "__main__":
    main()
