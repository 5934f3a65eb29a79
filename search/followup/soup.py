"""`sweep soup`: average the weights of a sweep's best trials, as long as validation gains (Wortsman et al. 2022, recipe 1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.effects.intervals import NORMAL_95, Interval
from analysis.export.bundle import check_out, export_model
from analysis.formatting import format_effect, format_score
from search.core.record import SweepRecord
from search.core.trials import Trial
from search.followup.replications.findings import Soup
from search.followup.trial_export import read_weights, source_of
from training.errors import UserError
from training.process.resources import find_device
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from rich.console import Console

    from training.soup import Cooked, Ingredient

# All trials of a soup have the same values of these fields.
SHARED = ("backbone", "preprocessing", "data", "seed", "flip_average", "evaluation_size")


def cook_soup(record: SweepRecord, out: Path | None, console: Console) -> Soup:
    """Average trials, compare the mean with the best single trial on the validation part, and export it.

    Nothing is exported if no other trial improves the best one. The test part is not read.

    Raises:
        UserError: fewer than two trials have weights that can be averaged, or the export cannot be written.
    """
    from training.soup import cook

    out = out or Path("exports") / f"{record.name}-soup"
    check_out(out)
    best, classes, ingredients, left_out = gather(record)
    for sentence in left_out:
        console.print(sentence, markup=False)
    names = [ingredient.name for ingredient in ingredients]
    console.print(f"Averaging trials, best first: {', '.join(names)}.", markup=False)
    recipe = ingredients[0].recipe
    cooked = cook(ingredients, classes, record.trials.metric, device=find_device())
    found = _describe(record, cooked, out)
    if found.folder is not None:
        source = replace(
            source_of(record, best, None, classes),
            metrics=cooked.metrics,
            score=found.score,
            standard_error=cooked.standard_error,
            run_id=None,
            soup=found.trials,
        )
        export_model(recipe, cooked.weights, source, out)
    for sentence in found.sentences:
        console.print(sentence, markup=False)
    return found


def gather(record: SweepRecord) -> tuple[Trial, tuple[str, ...], list[Ingredient], list[str]]:
    """Return the best trial with weights, its classes, what can be averaged with it, and sentences about the rest.

    Raises:
        UserError: there are fewer than two such trials.
    """
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


def find_difference(one: Recipe, other: Recipe) -> str:
    """Return the first field that trials of a soup must share and these do not; empty if there is none."""
    return next((field for field in SHARED if getattr(one, field) != getattr(other, field)), "")


def _describe(record: SweepRecord, cooked: Cooked, out: Path) -> Soup:
    metric, sign = record.trials.metric, record.trials.sign
    first, (*early, last) = cooked.names[0], cooked.names
    half = NORMAL_95 * cooked.gain_error
    gain = Interval(sign * cooked.gain, sign * cooked.gain - half, sign * cooked.gain + half)
    score, single = cooked.metrics[metric], cooked.metrics[metric] - cooked.gain
    if not early:
        sentences = [
            f"No other trial improves trial {first} on validation, so it is better alone, and nothing is written. Export "
            f"it: sweep export {record.name} --trial {first}."
        ]
        return Soup(cooked.names, metric, score, single, gain, None, sentences)
    sentences = [
        f"The mean of trials {', '.join(early)} and {last} has {metric} {format_score(metric, score)}; trial {first} "
        f"alone, the best, has {format_score(metric, single)}.",
        f"The gain is {format_effect(metric, gain.mean, gain.low, gain.high)}, with its 95 % interval over the "
        f"validation images{'' if gain.excludes_zero else ', so it may be luck'}. The trials were chosen on these images, "
        "so it is too optimistic.",
        f"Exported the mean to {out}: recipe of trial {first}, weights, summary, card.",
    ]
    return Soup(cooked.names, metric, score, single, gain, out, sentences)
