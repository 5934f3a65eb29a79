"""Does the demo find something? Its search with many seeds, and what winner and baseline are worth on unseen images.

    python benchmarks/demo.py [PATH=VALUE ...] [--seeds 20] [--confirm 5] [--folder FOLDER]

Each seed is one of the split, of the trainings and of the search. The winner and the best of the three baselines are
both chosen on the validation images; then each is scored on all images that the search never reads: the test split, and
the training images that data.train_size leaves out. Then both are trained on fresh seeds: the mean difference of these
trainings on the unseen images is the lead that the headline of the search should have named. With --folder the sweeps
are kept, and a second call goes on after the last complete one. Needs no network. A seed takes about a minute (two
cores, no other work).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

import search
from analysis.effects.lead import judge_lead
from analysis.effects.seed_intervals import paired_interval
from analysis.effects.technique_effects import fit_sweep
from ledger.recipe_text import short_recipe
from ledger.record import SweepRecord
from ledger.tables import make_tables
from ledger.trials import Trial
from search.evaluation.replications.findings import BASELINE
from search.evaluation.replications.replication import choose_baseline, read_replication, replication_folder
from training.contract.specs import Data
from training.data.files.images import ImageData, ImagePart
from training.data.load_data import load_data
from training.data.splits import split_stratified
from training.evaluate import load_same_data, predict_part, read_trained, restore_model
from training.recipe import Recipe, read_recipe


@dataclass(frozen=True)
class Outcome:
    """One seed: accuracies in validation, on the test split and on all unseen images; the headline; the epochs.

    `fresh_val` and `fresh_unseen` are the leads of the winner on each fresh seed, in validation and on the unseen images;
    they are empty if the winner is the baseline.
    """

    winner: str
    winner_val: float
    winner_test: float
    winner_unseen: float
    baseline_val: float
    baseline_test: float
    baseline_unseen: float
    verdict: str
    lead: tuple[float, float, float]  # as the headline says: mean, low, high
    probability: float
    fresh_val: tuple[float, ...]
    fresh_unseen: tuple[float, ...]
    epochs: int
    recipe: str


def run_seed(seed: int, folder: Path, overrides: list[str], fresh: int) -> Outcome:
    """Run the demo's search in a folder of its own, and score what it found on the test split."""
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
    baseline = choose_baseline(result.record)
    tables = make_tables(result.record)
    lead = judge_lead(tables, fit_sweep(tables))
    assert best is not None
    assert lead is not None
    fresh_val, fresh_unseen = train_fresh(result, fresh) if lead.verdict != "baseline" else ((), ())
    checkpoints = [folder / f"seed-{seed}" / "trials" / trial.name / "best.ckpt" for trial in (best, baseline)]
    return Outcome(
        winner=best.name,
        winner_val=best.score or 0.0,
        winner_test=score_test(checkpoints[0]),
        winner_unseen=score_unseen(checkpoints[0]),
        baseline_val=baseline.score or 0.0,
        baseline_test=score_test(checkpoints[1]),
        baseline_unseen=score_unseen(checkpoints[1]),
        verdict=lead.verdict,
        lead=(lead.mean, lead.low, lead.high),
        probability=lead.probability,
        fresh_val=fresh_val,
        fresh_unseen=fresh_unseen,
        epochs=sum(trial.epoch for trial in trials),
        recipe=short_recipe(best.recipe, baseline.recipe),
    )


def train_fresh(result: search.Result, seeds: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Train winner and baseline on fresh seeds; return the winner's leads in validation and on the unseen images."""
    with chdir(result.record.folder.path.parent):  # the confirmation also exports its winner
        result.confirm(top=1, seeds=seeds)
    record = SweepRecord.open(replication_folder(result.record.folder, "confirm"))
    trials = read_replication(record).by_label
    baselines = trials.pop(BASELINE)
    (winners,) = trials.values()

    def unseen(trial: Trial) -> float:
        return score_unseen(record.folder.trial(trial.number) / "best.ckpt")

    pairs = list(zip(winners, baselines, strict=True))
    return tuple((one.score or 0.0) - (other.score or 0.0) for one, other in pairs), tuple(
        unseen(one) - unseen(other) for one, other in pairs
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
    saved = read_trained(checkpoint)
    classes = tuple(saved["classes"])
    recipe = read_recipe(saved["recipe"])
    model = restore_model(recipe, saved["state_dict"], len(classes))
    logits, labels = predict_part(model, choose(load_same_data(recipe, classes), recipe), recipe)
    return float((logits.argmax(1) == labels).double().mean())


def run_all(seeds: int, folder: Path, overrides: list[str], fresh: int) -> list[Outcome]:
    """Run the seeds that the folder does not have yet."""
    outcomes = []
    for seed in range(seeds):
        kept = folder / f"seed-{seed}.json"
        if not kept.exists():
            for name in (f"seed-{seed}", f"seed-{seed}-confirm"):
                shutil.rmtree(folder / name, ignore_errors=True)  # of an interrupted call
            outcome = run_seed(seed, folder, overrides, fresh)
            kept.write_text(json.dumps(asdict(outcome)))
        outcomes.append(Outcome(**json.loads(kept.read_text())))
        print(f"seed {seed}: {outcomes[-1]}", flush=True)
    return outcomes


def show(outcomes: list[Outcome], console: Console) -> None:
    """Print a line for each seed, then what holds over all of them."""
    table = Table(title="Accuracy in validation / on all unseen images")
    for name in ("seed", "winner", "baseline", "gain, unseen", "headline", "fresh seeds"):
        table.add_column(name, no_wrap=True)
    for seed, one in enumerate(outcomes):
        winner = f"{one.winner_val:.1%} / {one.winner_unseen:.1%}"
        baseline = f"{one.baseline_val:.1%} / {one.baseline_unseen:.1%}"
        gain = 100 * (one.winner_unseen - one.baseline_unseen)
        table.add_row(str(seed), winner, baseline, f"{gain:+.1f}", *_leads(one))
    console.print(table)
    for name, part in (("all unseen images", "unseen"), ("the test split alone", "test")):
        scores = {who: [getattr(one, f"{who}_{part}") for one in outcomes] for who in ("winner", "baseline")}
        mean_gain = paired_interval(scores, "winner", "baseline")
        ahead = sum(winner > baseline for winner, baseline in zip(*scores.values(), strict=True))
        console.print(
            f"On {name}, the winner is above the baseline in {ahead} of {len(outcomes)} seeds; "
            f"mean gain {100 * mean_gain.mean:+.1f} points ({100 * mean_gain.low:+.1f} to {100 * mean_gain.high:+.1f})."
        )
    for verdict in ("clear", "open", "baseline"):
        said = [one for one in outcomes if one.verdict == verdict]
        if not said:
            continue
        held = sum(one.winner_unseen > one.baseline_unseen for one in said)
        line = f"Called {verdict!r}: {len(said)} seeds, in {held} of them above the baseline on unseen images"
        if fresh := [one for one in said if one.fresh_unseen]:
            leads = [mean(one.fresh_unseen) for one in fresh]
            inside = sum(one.lead[1] <= lead <= one.lead[2] for one, lead in zip(fresh, leads, strict=True))
            line += (
                f"; on fresh seeds too in {sum(lead > 0 for lead in leads)} of {len(fresh)}, by {100 * mean(leads):+.1f} "
                f"points on average; the headline said {100 * mean(one.lead[0] for one in fresh):+.1f} with certainty "
                f"{mean(one.probability for one in fresh):.2f}, and its interval has the lead in {inside}"
            )
        console.print(f"{line}.")


def _leads(one: Outcome) -> tuple[str, str]:
    said, low, high = (100 * value for value in one.lead)
    headline = f"{one.verdict} {said:+.1f} ({low:+.1f} to {high:+.1f}) {one.probability:.2f}"
    return headline, f"{100 * mean(one.fresh_unseen):+.1f}" if one.fresh_unseen else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="PATH=VALUE", help="changes of the space, as in sweep run")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--confirm", type=int, default=5, metavar="SEEDS", help="fresh seeds of winner and baseline")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        show(run_all(arguments.seeds, folder, arguments.overrides, arguments.confirm), Console())


if __name__ == "__main__":
    main()
