"""`sweep confirm`: train the best recipes again on fresh seeds, then score the winner once on the unused test part.

The best of many trials was also lucky (the winner's curse), so only seeds that the search never used count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.effects.intervals import Interval, paired_interval, rank_ranges, score_interval, score_noise
from analysis.export.bundle import check_out
from search.arguments import check_number
from search.core.record import SweepRecord
from search.core.trials import Trial, Trials
from search.followup.candidates import choose_baseline, choose_best, name_recipes
from search.followup.replications.findings import BASELINE, Confirmation, ConfirmedRecipe
from search.followup.replications.replication import (
    SEEDS,
    Replicated,
    continue_replication,
    open_replication,
    run_replication,
)
from search.followup.trial_export import write_trial
from search.storage.events import TestOpened, TestScored
from search.storage.folder import SweepFolder
from training.errors import UserError
from training.process.resources import find_device

if TYPE_CHECKING:
    from rich.console import Console

    from search.runner.driver import SweepEnd

TOP, MOST_RECIPES = 3, 1000


def run_confirmation(source: SweepRecord, top: int | None, seeds: int | None, console: Console) -> SweepEnd:
    """Train the best `top` recipes and the baseline on fresh seeds, or continue an existing confirmation.

    Raises:
        UserError: nothing completed, too few seeds, or a confirmation with another number of seeds exists.
    """
    if (record := open_replication(source, "confirm", seeds)) is not None:
        return continue_replication(record, console)
    check_number("--top", top, most=MOST_RECIPES)
    best = choose_best(source.trials, source.name, top or TOP)
    recipes = name_recipes(best, choose_baseline(source.trials, source.name))
    few = f"--top={top}: {source.name} has {len(best)} different recipes that completed."
    return run_replication(
        source,
        "confirm",
        recipes,
        seed_count=seeds or SEEDS,
        keep_best=len(recipes) * (seeds or SEEDS),  # which recipe wins is known only at the end
        notes=[few] if top and len(best) < top else [],
        console=console,
    )


def conclude_confirmation(replicated: Replicated, console: Console) -> Confirmation:
    """Compare the recipes on fresh seeds, score the winner once on the test part, then write, export and log the results.

    Raises:
        UserError: no recipe completed on every seed.
    """
    from search.followup.replications.confirm_page import write_page
    from search.followup.replications.confirm_sentences import describe, show
    from search.tracking.results import log_results

    record = replicated.record
    recipes = compare(replicated)
    trial = replicated.trials.by_number[record.test.trial] if record.test else _best_seed(replicated, recipes[0].label)
    test = record.test or _score_test(replicated, trial)
    notes = [*replicated.event.notes, *replicated.describe_incomplete()]
    found = Confirmation(
        record.name, replicated.event.of, replicated.trials.metric, replicated.event.seeds, recipes, notes, test
    )
    results = record.folder.path / "confirm.json"
    results.write_text(json.dumps(found.to_json(), indent=2) + "\n")
    page = write_page(record.folder, replicated, found)
    console.print(show(replicated, found))
    out = Path("exports") / record.name
    check_out(out)
    console.print(write_trial(record, trial, *replicated.weights(trial), out).sentence, markup=False)
    console.print(f"The page: {page}", markup=False)
    metrics = {"test_accuracy": test.results["accuracy"]["mean"]}
    metrics |= {f"test_{name}": value for name, value in test.results["calibration"]["before"].items()}
    metrics[f"confirmed_{found.metric}"] = found.winner.interval.mean
    log_results(record, metrics, [page, results], describe(replicated, found), test.time, console)
    return found


def compare(replicated: Replicated) -> list[ConfirmedRecipe]:
    """Return means, intervals and ranks of the recipes that completed on every seed, best first.

    Raises:
        UserError: none did.
    """
    scores, sign = replicated.scores(), replicated.trials.sign
    if not scores:
        raise UserError(
            f"{replicated.record.name}: no recipe completed on every seed, so nothing can be compared. "
            + " ".join(replicated.describe_incomplete())
        )
    ranks, noise = rank_ranges(scores, sign), score_noise(scores)
    metric, source = replicated.trials.metric, replicated.source.trials
    intervals = {label: score_interval(metric, values, noise, len(scores)) for label, values in scores.items()}
    return [
        ConfirmedRecipe(
            label,
            searched=_searched(source, label),
            scores=scores[label],
            interval=intervals[label],
            ranks=ranks[label],
            ahead_of_baseline=_ahead(scores, label, sign),
        )
        for label in sorted(scores, key=lambda label: -sign * intervals[label].mean)
    ]


def _ahead(scores: dict[str, list[float]], label: str, sign: int) -> Interval | None:
    """Return the interval of the gain over the baseline, computed per seed; positive is better."""
    if label == BASELINE or BASELINE not in scores:
        return None
    gap = paired_interval(scores, label, BASELINE, len(scores) - 1)
    return gap if sign > 0 else Interval(-gap.mean, -gap.high, -gap.low)


def _searched(source: Trials, label: str) -> float | None:
    """Return the score of a recipe in the search."""
    trial = choose_baseline(source, "") if label == BASELINE else source.by_number[int(label)]
    return trial.score


def _score_test(replicated: Replicated, trial: Trial) -> TestScored:
    """Score the winner on the test part. The ledger of the searched sweep counts how often this was done.

    Raises:
        UserError: the trial's weights are gone.
    """
    from analysis.held_out.scoring import score_test
    from training.evaluate import load_same_data, predict_part, restore_model
    from training.recipe import read_recipe

    record = replicated.record
    saved, why = replicated.weights(trial)
    if saved is None:
        raise UserError(
            f"{record.name}: the weights of its best trial, {trial.name}, are gone ({why}), so it cannot be scored. "
            f"Confirm again: sweep rm {record.name}, then sweep confirm {replicated.event.of}."
        )
    recipe, classes = read_recipe(saved["recipe"]), tuple(saved["classes"])
    model = restore_model(recipe, saved["state_dict"], len(classes))
    data = load_same_data(recipe, classes)
    val = predict_part(model, data.val, recipe, device=find_device())
    before = replicated.source.test_openings
    replicated.source.append(TestOpened(by=record.name))
    test = predict_part(model, data.test, recipe, device=find_device())
    results = score_test((val[0].numpy(), val[1].numpy()), (test[0].numpy(), test[1].numpy()), classes)
    if results["worst"]:
        _draw_worst(record.folder, data.test, results["worst"], classes, recipe)
    event = TestScored(trial=trial.number, openings_before=before, classes=classes, results=results)
    record.append(event)
    return event


def _best_seed(replicated: Replicated, label: str) -> Trial:
    """Return the winner's trial with the best validation score; with equal scores, the first."""
    sign = replicated.trials.sign
    return max(replicated.by_label[label], key=lambda trial: (sign * (trial.score or 0.0), -trial.number))


def _draw_worst(folder: SweepFolder, part: Any, worst: list[Any], classes: Any, recipe: Any) -> None:
    """Draw the worst errors into a file beside the ledger, and add the names of their images to the results."""
    from analysis.held_out.score_figures import draw_worst
    from training.data.files.decode import printable
    from training.data.files.images import ImageFiles

    (folder.path / "worst.png").write_bytes(draw_worst(part, worst, classes, recipe))
    if isinstance(part.images, ImageFiles):
        for error in worst:
            error["file"] = printable(part.images.paths[error["position"]])
