"""`sweep confirm`: train the best recipes again on fresh seeds, then score the winner once on the unused test split.

The best of many trials was also lucky (the winner's curse), so only seeds that the search never used count.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from analysis.effects.seed_intervals import Interval, paired_interval, rank_ranges, score_interval, score_noise
from analysis.export.bundle import check_out
from ledger.events import TestOpened, TestScored
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.arguments import check_number
from search.evaluation.last_trainings import train_release
from search.evaluation.replications.confirm_page import describe_seeds, describe_winner, judge, list_recipes, render
from search.evaluation.replications.findings import BASELINE, Confirmation, ConfirmedRecipe
from search.evaluation.replications.replication import (
    Conclusion,
    Replicated,
    Variants,
    choose_baseline,
    choose_best,
    replicate,
)
from search.evaluation.trial_export import place_export, read_weights, write_trial
from search.runner.interrupt import resumable
from training.errors import UserError, printable
from training.process.resources import find_device
from training.recipe import read_recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from search.runner.display import Display

TOP, MOST_RECIPES = 3, 1000
RECIPES = ("rank", "recipe", "score", "changes to the baseline")


def confirm(
    source: SweepRecord, top: int | None, seeds: int | None, seconds: float | None, display: Display
) -> Replicated:
    """Train the best `top` recipes and the baseline on fresh seeds, or continue an existing confirmation.

    With `seconds`, there are as many seeds as are likely to fit.

    Raises:
        Interrupted: it was interrupted.
    """

    def choose() -> Variants:
        check_number("--top", top, most=MOST_RECIPES)
        best = choose_best(source, len(source.trials))
        baseline = choose_baseline(source)
        best = [trial for trial in best if trial.recipe != baseline.recipe][: top or TOP]
        if not best:
            raise UserError(
                f"{source.name}: no recipe but the baseline has completed, so there is nothing to compare. "
                f"Continue with: sweep resume {source.called} --trials N."
            )
        recipes = {trial.name: trial.recipe for trial in best}
        few = f"--top={top}: besides the baseline, {source.name} has {len(best)} different recipes that completed."
        notes = [few] if top and len(best) < top else []
        return Variants({BASELINE: baseline.recipe} | recipes, notes, keeps_all=True)  # the winner is known at the end

    return replicate(source, "confirm", seeds, seconds, choose, display)


def conclude_confirmation(replicated: Replicated) -> Conclusion:
    """Compare the recipes on fresh seeds, and score the winner once on the test split."""
    record = replicated.record
    recipes = compare(replicated)
    test = record.test or _score_test(replicated, _find_trial(replicated, recipes[0].label))
    notes = [*replicated.event.notes, *replicated.describe_incomplete()]
    confirmation = Confirmation(
        record.name, replicated.event.of, replicated.trials.metric, replicated.event.seeds, recipes, notes, test
    )
    metrics = {f"confirmed_{confirmation.metric}": confirmation.winner.interval.mean}
    if test is not None:
        metrics |= {"test_accuracy": test.results["accuracy"]["mean"]}
        metrics |= {f"test_{name}": value for name, value in test.results["calibration"]["before"].items()}
    above, below = describe_seeds(confirmation), describe_winner(confirmation)
    rows = list_recipes(replicated, confirmation)
    page, stamp = render(replicated, confirmation), test.time if test else time.time()
    return Conclusion(replicated, confirmation, page, above, RECIPES, rows, below, metrics, stamp)


def export_winner(replicated: Replicated, confirmation: Confirmation) -> str:
    """Export the model that was scored, and return a sentence about what was written."""
    record, trial = replicated.record, _find_trial(replicated, confirmation.winner.label)
    check_out(out := place_export(record.name, record))
    headline = judge(confirmation.metric, confirmation.winner)
    return write_trial(record, trial, *read_weights(record, trial), out, headline=headline).sentence


def compare(replicated: Replicated) -> list[ConfirmedRecipe]:
    """Return means, intervals and ranks of the recipes that completed on every seed, best first."""
    scores, sign = replicated.scores(), replicated.trials.sign
    if not scores:
        raise UserError(
            f"{replicated.record.name}: no recipe completed on every seed, so nothing can be compared. "
            + " ".join(replicated.describe_incomplete())
        )
    ranks, noise = rank_ranges(scores, sign), score_noise(scores)
    metric, source = replicated.trials.metric, replicated.source
    intervals = {label: score_interval(metric, values, noise, len(scores)) for label, values in scores.items()}
    searched = {
        label: choose_baseline(source) if label == BASELINE else source.trials.by_number[int(label)] for label in scores
    }
    return [
        ConfirmedRecipe(
            label,
            searched=searched[label].score,
            scores=scores[label],
            interval=intervals[label],
            ranks=ranks[label],
            ahead_of_baseline=_ahead(scores, label, sign),
            is_baseline=searched[label].origin == "baseline",
        )
        for label in sorted(scores, key=lambda label: -sign * intervals[label].mean)
    ]


def _ahead(scores: dict[str, list[float]], label: str, sign: int) -> Interval | None:
    """Return the interval of the gain over the baseline, computed per seed; positive is better."""
    if label == BASELINE or BASELINE not in scores:
        return None
    gap = paired_interval(scores, label, BASELINE, len(scores) - 1)
    return gap if sign > 0 else Interval(-gap.mean, -gap.high, -gap.low)


def _score_test(replicated: Replicated, trial: Trial) -> TestScored | None:
    """Score the winner on the test split, if the data have one. The searched sweep's ledger counts how often this was done."""
    from analysis.held_out.score_page import draw_worst_of
    from analysis.held_out.scoring import score_test
    from training.data.files.images import ImageFiles
    from training.evaluate import load_same_data, predict_part, restore_model

    record = replicated.record
    saved, why = read_weights(record, trial)
    if saved is None:
        raise UserError(
            f"{record.name}: the weights of its best trial, {trial.name}, are gone ({why}), so it cannot be scored. "
            f"Confirm again: sweep rm {record.called}, then sweep confirm {replicated.source.called}."
        )
    recipe, classes = read_recipe(saved["recipe"]), tuple(saved["classes"])
    data = load_same_data(recipe, classes)
    if not len(data.test):
        return None
    model = restore_model(recipe, saved["state_dict"], len(classes))
    val = predict_part(model, data.val, recipe, device=find_device())
    before = replicated.source.test_openings
    replicated.source.append(TestOpened(by=record.name))
    test = predict_part(model, data.test, recipe, device=find_device())
    results = score_test((val[0].numpy(), val[1].numpy()), (test[0].numpy(), test[1].numpy()), classes)
    worst = results["worst"]
    if isinstance(data.test.images, ImageFiles):
        for error in worst:
            error["file"] = printable(data.test.images.paths[error["position"]])
    event = TestScored(trial=trial.number, openings_before=before, classes=classes, results=results)
    record.append(event)  # before the picture, which may fail
    if worst:
        (record.folder.path / "worst.png").write_bytes(draw_worst_of(data.test, worst, classes, recipe))
    return event


def _find_trial(replicated: Replicated, label: str) -> Trial:
    """Return the trial whose model was scored, else the winner's with the best validation score; with equal ones the first."""
    sign, test = replicated.trials.sign, replicated.record.test
    if test is not None:
        return replicated.trials.by_number[test.trial]
    return max(replicated.by_label[label], key=lambda trial: (sign * (trial.score or 0.0), -trial.number))


def train_final(replicated: Replicated, confirmation: Confirmation, say: Callable[[str], None]) -> None:
    """Train the winner on training and validation images, and export its last epoch.

    Raises:
        Interrupted: a signal ended it.
    """
    record, trial = replicated.record, _find_trial(replicated, confirmation.winner.label)
    out = place_export(f"{replicated.event.of}-final", record)
    headline = judge(confirmation.metric, confirmation.winner)
    with resumable(f"Continue with: sweep confirm {replicated.source.called} --final"):
        is_trained = train_release(record, trial, out, say, headline=headline, test=record.test)
    if not is_trained:
        raise UserError(
            f"{record.name}: on training and validation images together its recipe diverged, or its worker was lost, so "
            f"there is no model to release. The confirmed model is the best there is: {place_export(record.name, record)}."
        )
    say(f"Exported the model to release to {out}: recipe, weights, summary, card.")
