"""Does the demo find something? Its search with many seeds, and what winner and baseline are worth on unseen images.

    python benchmarks/demo.py [PATH=VALUE ...] [--seeds 20] [--folder FOLDER]

Each seed is one of the split, of the trainings and of the search. The winner and the best of the three baselines are
both chosen on the validation images; then each is scored on all images that the search never reads: the test part, and
the training images that data.train_size leaves out. With --folder the sweeps are kept, and a second call goes on after
the last complete one. Needs no network. A seed is one run of the demo, and was measured on a busy machine only:
2 to 6 minutes (two cores with a load of 5 to 13, 20 digits, 9 epochs of 384 images).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import search
from analysis.effects.intervals import paired_interval
from search.display.recipe_text import short_recipe
from search.display.significance import judge
from training.contract.specs import Data
from training.data.files.images import ImageData, ImagePart
from training.data.sources.load_data import load_data
from training.data.sources.splits import split_stratified
from training.evaluate import load_same_data, predict_part, restore_model
from training.loop.checkpoint import read_checkpoint
from training.recipe import Recipe, read_recipe


@dataclass(frozen=True)
class Outcome:
    """One seed: accuracies in validation, on the test part and on all unseen images; the printed verdict; the epochs."""

    winner: str
    winner_val: float
    winner_test: float
    winner_unseen: float
    baseline_val: float
    baseline_test: float
    baseline_unseen: float
    probe_val: float
    lead: str
    epochs: int
    recipe: str


def run_seed(seed: int, folder: Path, overrides: list[str]) -> Outcome:
    """Run the demo's search in a folder of its own, and score what it found on the test part."""
    result = search.run(
        "quick",
        [f"seed={seed}", f"data.split_seed={seed}", *overrides],
        name=f"seed-{seed}",
        seed=seed,
        storage=folder,
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
        keep_best=100,
        console=Console(quiet=True),
    )
    trials, best = result.record.trials, result.best
    baselines = [trial for trial in trials.ranked() if trial.origin == "baseline" and trial.state == "completed"]
    found = judge(trials)
    assert best is not None
    assert found is not None
    assert trials.probe is not None
    checkpoints = [folder / f"seed-{seed}" / "trials" / trial.name / "best.ckpt" for trial in (best, baselines[0])]
    return Outcome(
        winner=best.name,
        winner_val=best.score or 0.0,
        winner_test=score_test(checkpoints[0]),
        winner_unseen=score_unseen(checkpoints[0]),
        baseline_val=baselines[0].score or 0.0,
        baseline_test=score_test(checkpoints[1]),
        baseline_unseen=score_unseen(checkpoints[1]),
        probe_val=trials.probe.linear["val_accuracy"],
        lead=found.lead or "",
        epochs=sum(trial.epoch for trial in trials),
        recipe=short_recipe(best.recipe, baselines[0].recipe),
    )


def score_test(checkpoint: Path) -> float:
    """Return the accuracy on the test images of the weights in a `best.ckpt`."""
    return _score(checkpoint, lambda data, recipe: data.test)


def score_unseen(checkpoint: Path) -> float:
    """Return the accuracy on the test images and the training images that `data.train_size` leaves out."""
    return _score(checkpoint, lambda data, recipe: data.test.join(_left_out(recipe.data)))


def _left_out(spec: Data) -> ImagePart:
    whole = load_data(spec.model_copy(update={"train_size": None})).train
    assert spec.train_size is not None
    return whole.select(split_stratified(whole.labels, (spec.train_size,), spec.split_seed)[1])


def _score(checkpoint: Path, choose: Callable[[ImageData, Recipe], ImagePart]) -> float:
    saved = read_checkpoint(checkpoint)
    classes = tuple(saved["classes"])
    recipe = read_recipe(saved["recipe"])
    model = restore_model(recipe, saved["state_dict"], len(classes))
    logits, labels = predict_part(model, choose(load_same_data(recipe, classes), recipe), recipe)
    return float((logits.argmax(1) == labels).double().mean())


def run_all(seeds: int, folder: Path, overrides: list[str]) -> list[Outcome]:
    """Run the seeds that the folder does not have yet."""
    outcomes = []
    for seed in range(seeds):
        kept = folder / f"seed-{seed}.json"
        if not kept.exists():
            shutil.rmtree(folder / f"seed-{seed}", ignore_errors=True)  # of an interrupted call
            outcome = run_seed(seed, folder, overrides)
            kept.write_text(json.dumps(asdict(outcome)))
        outcomes.append(Outcome(**json.loads(kept.read_text())))
        print(f"seed {seed}: {outcomes[-1]}", flush=True)
    return outcomes


def show(outcomes: list[Outcome], console: Console) -> None:
    """Print a line for each seed, then what holds over all of them."""
    table = Table(title="Accuracy in validation / on all unseen images")
    for name in ("seed", "winner", "baseline", "probe", "gain, unseen", "lead"):
        table.add_column(name, no_wrap=True)
    for seed, one in enumerate(outcomes):
        winner = f"{one.winner_val:.1%} / {one.winner_unseen:.1%}"
        baseline = f"{one.baseline_val:.1%} / {one.baseline_unseen:.1%}"
        gain = 100 * (one.winner_unseen - one.baseline_unseen)
        table.add_row(str(seed), winner, baseline, f"{one.probe_val:.1%}", f"{gain:+.1f}", one.lead)
    console.print(table)
    for name, kind in (("all unseen images", "unseen"), ("the test part alone", "test")):
        scores = {who: [getattr(one, f"{who}_{kind}") for one in outcomes] for who in ("winner", "baseline")}
        gain = paired_interval(scores, "winner", "baseline")
        ahead = sum(winner > baseline for winner, baseline in zip(*scores.values(), strict=True))
        console.print(
            f"On {name}, the winner is above the baseline in {ahead} of {len(outcomes)} seeds; "
            f"mean gain {100 * gain.mean:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})."
        )
    for lead in ("clear", "luck", "noise", "baseline"):
        said = [one for one in outcomes if one.lead == lead]
        held = sum(one.winner_unseen > one.baseline_unseen for one in said)
        console.print(
            f"Lead called {lead!r}: {len(said)} seeds, in {held} of them above the baseline on unseen images."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="PATH=VALUE", help="changes of the space, as in sweep run")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        show(run_all(arguments.seeds, folder, arguments.overrides), Console())


if __name__ == "__main__":
    main()
