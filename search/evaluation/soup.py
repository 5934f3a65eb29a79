"""`sweep soup`: average the weights of a sweep's best trials, if validation gains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.effects.intervals import NORMAL_95, Interval
from analysis.export.bundle import check_out, export_model
from analysis.export.summary import Provenance
from ledger.formatting import format_effect, format_score
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.evaluation.replications.findings import Soup
from search.evaluation.trial_export import read_weights, source_of
from search.runner.start.moved_data import check_images
from training.contract.technique import Technique
from training.errors import UserError
from training.process.resources import find_device
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from rich.console import Console

    from training.soup import Cooked, Ingredient

SHARED = ("backbone", "preprocessing", "data", "seed")  # all trials of a soup have them, and what belongs to the model


def cook_soup(record: SweepRecord, out: Path | None, console: Console) -> Soup:
    """Average trials, compare the mean with the best single trial on the validation part, and export it.

    Nothing is exported if no other trial improves the best one. The test split is not read.
    """
    from training.soup import cook

    out = out or Path("exports") / f"{record.name}-soup"
    check_out(out)
    check_images(record, None)
    best, classes, ingredients, left_out = gather(record)
    for sentence in left_out:
        console.print(sentence, markup=False)
    names = [ingredient.name for ingredient in ingredients]
    console.print(f"Averaging trials, best first: {', '.join(names)}.", markup=False)
    recipe = ingredients[0].recipe
    cooked = cook(ingredients, classes, record.trials.metric, device=find_device())
    soup = _describe(record, cooked, out)
    source = source_of(record, best, None, classes)
    return _export(soup, recipe, cooked, {**source, "soup": list(soup.trials)}, console)


def _export(soup: Soup, recipe: Recipe, cooked: Cooked, source: Provenance, console: Console) -> Soup:
    """Write the export of a result that has a folder, and print its sentences."""
    if soup.folder is not None:
        source = {
            **source,
            "metrics": cooked.metrics,
            "score": soup.score,
            "standard_error": cooked.standard_error,
            "mlflow_run_id": None,
        }
        export_model(recipe, cooked.weights, source, soup.folder)
    for sentence in soup.sentences:
        console.print(sentence, markup=False)
    return soup


def gather(record: SweepRecord) -> tuple[Trial, tuple[str, ...], list[Ingredient], list[str]]:
    """Return the best trial with weights, its classes, what can be averaged with it, and sentences about the rest."""
    from training.soup import Ingredient

    chosen: list[tuple[Trial, Ingredient]] = []
    left_out: list[str] = []
    for trial in record.trials.ranked():
        saved, _ = read_weights(record, trial) if trial.state == "completed" else (None, "")
        if saved is None:
            continue
        recipe = read_recipe(saved["recipe"])
        if recipe.snapshots.is_on:
            left_out.append(f"Trial {trial.name} is left out: with snapshots it is an ensemble already.")
            continue
        if chosen and (field := find_difference(chosen[0][1].recipe, recipe)):
            left_out.append(f"Trial {trial.name} is left out: its {field} is not that of trial {chosen[0][0].name}.")
            continue
        classes = tuple(saved["classes"])
        chosen.append((trial, Ingredient(trial.name, recipe, saved["state_dict"])))
    if len(chosen) < 2:
        raise UserError(
            f"{record.name}: a soup needs at least two completed trials with weights, of one backbone, preprocessing and "
            f"seed, and there {'is one' if chosen else 'is none'}. Keep the weights of more trials: sweep run --keep-best 10."
        )
    return chosen[0][0], classes, [ingredient for _, ingredient in chosen], left_out


def find_difference(first: Recipe, second: Recipe) -> str:
    """Return the first field that trials of a soup must share and these do not; empty if there is none."""
    in_model = [name for name, part in first.parts() if isinstance(part, Technique) and part.is_in_model]
    return next((field for field in (*SHARED, *in_model) if getattr(first, field) != getattr(second, field)), "")


def _describe(record: SweepRecord, cooked: Cooked, out: Path) -> Soup:
    metric, score, single, gain = _measure(record, cooked)
    first, (*early, last) = cooked.names[0], cooked.names
    if early:
        sentences = [
            f"The mean of trials {', '.join(early)} and {last} has {metric} {format_score(metric, score)}; trial {first} "
            f"alone, the best, has {format_score(metric, single)}.",
            f"{_describe_gain(metric, gain)} The trials were chosen on these images, so it is too optimistic.",
            f"Exported the mean to {out}: recipe of trial {first}, weights, summary, card.",
        ]
    else:
        sentences = [
            f"No other trial improves trial {first} on validation, so it is better alone, and nothing is written. Export "
            f"it: sweep export {record.name} --trial {first}."
        ]
    return Soup(cooked.names, metric, score, single, gain, out if early else None, sentences)


def _measure(record: SweepRecord, cooked: Cooked) -> tuple[str, float, float, Interval]:
    """Return the metric, the scores of the mean and of the trial alone, and the gain with its interval."""
    metric, sign = record.trials.metric, record.trials.sign
    half = NORMAL_95 * cooked.gain_error
    gain = Interval(sign * cooked.gain, sign * cooked.gain - half, sign * cooked.gain + half)
    return metric, cooked.metrics[metric], cooked.metrics[metric] - cooked.gain, gain


def _describe_gain(metric: str, gain: Interval) -> str:
    return (
        f"The gain is {format_effect(metric, gain.mean, gain.low, gain.high)}, with its 95 % interval over the validation "
        f"images{'' if gain.excludes_zero else ', so it may be luck'}."
    )
