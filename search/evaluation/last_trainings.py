"""The last training: on the images of training and validation together, by one recipe or by several for one ensemble."""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.export.bundle import check_out, export_model
from ledger.formatting import plural
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.core.pace import GRACE, MEMBERS
from search.evaluation.trial_export import describe_trial, place_export, read_weights, source_of
from search.runner.interrupt import Interrupted, interruptible
from search.runner.worker import share_resources
from training.contract.technique import Technique
from training.errors import UserError
from training.process.resources import count_cpus
from training.recipe import Recipe, read_recipe
from training.techniques.model.flip_average import FlipAverage

if TYPE_CHECKING:
    import torch

    from analysis.export.summary import Provenance
    from ledger.events import TestScored


MOST_MEMBERS = MEMBERS + 1
NEAR = 1.5  # standard errors of the best score that another member may be behind


@dataclass(frozen=True)
class Trained:
    """A training: its resolved recipe, its weights, and its CPU threads."""

    recipe: Recipe
    weights: dict[str, torch.Tensor]
    classes: tuple[str, ...]
    threads: int


def train_release(
    record: SweepRecord,
    trial: Trial,
    out: Path,
    say: Callable[[str], None],
    *,
    headline: str,
    hint: str,
    test: TestScored | None,
) -> bool:
    """Train a trial's recipe on training and validation images, and export the model to `out`.

    Returns whether there is a model: False if it diverged.

    Raises:
        Interrupted: a signal ended it.
    """
    trained = _train(record, _read_trained(record, trial).recipe, describe_trial(record, trial), say, hint)
    if trained is None:
        return False
    _export([trained], {**source_of(record, trial, test, trained.classes), "finding": headline}, out)
    return True


def train_ensemble(record: SweepRecord, seconds: float, out: Path, say: Callable[[str], None], headline: str) -> None:
    """Train the leaders on training and validation images while there is time; export the mean of their probabilities.

    Where there is time for fewer than three, those that the search has trained fill it up. The first training alone is
    kept beside. The mean of several trainings is better than one (Lakshminarayanan et al. 2017), most where their recipes
    differ (Wenzel et al. 2020).

    Raises:
        Interrupted: a signal ended it. The exports have what was trained before.
    """
    check_out(single := place_export(f"{out.name}-single", record))
    began, hint = time.monotonic(), f"{out} has the model without the images of the validation."
    until = began + seconds + GRACE * (record.settings.time_budget_seconds or 0.0)
    leaders = _list_leaders(record)
    # The weights of snapshots are an ensemble already, and a linear probe on more images is the same model.
    searched = [
        leader for leader in leaders if leader[1].recipe.linear_probe.trains and not leader[1].recipe.snapshots.is_on
    ]
    trained: list[Trained] = []
    names: list[str] = []
    pace = 0.0  # seconds of a training here for each second of its trial
    first = leaders[0][0]
    if first is not record.trials.best():
        say(f"The probe leads by less than a standard error, so trial {first.name} trains last.")
    for trial, recipe in _list_members(leaders):
        now, usual = time.monotonic(), trial.reports[-1].worker_seconds or 1.0
        if len(trained) == MOST_MEMBERS or now + pace * usual > began + seconds:
            continue  # one that comes later may be quicker
        shutil.rmtree(record.folder.path / "final", ignore_errors=True)  # that of another training
        name = trial.name + (f" with seed {recipe.seed}" if recipe.seed != trial.recipe.seed else "")
        if (member := _train(record, recipe, f"trial {name}", say, hint, until)) is None:
            break
        pace = max(pace, (time.monotonic() - now) / usual)
        if any(all(other.weights[key].equal(value) for key, value in member.weights.items()) for other in trained):
            continue  # such as a linear probe, to which a seed means nothing
        trained.append(member)
        names.append(name)
        source = source_of(record, first, None, member.classes)
        if first is record.trials.best():
            source["finding"] = headline
        hint = f"{out} has that model; its score is from before, because validation images are now in its training."
        filling = searched[: max(0, MEMBERS - len(trained))]
        joined = [*trained, *(kept for _, kept in filling)]
        if len(trained) == (1 if searched else 2):
            _export(trained[:1], source, single)
        if joined[1:]:
            source["ensemble"] = [*names, *(f"{trial.name} as searched" for trial, _ in filling)]
            mirrored, passes = (", mirrored too", 2) if recipe.flip_average.enabled else ("", 1)
            hint = (
                f"{out} has the mean of {len(joined)} models (trials {', '.join(source['ensemble'])}{mirrored}), which is "
                f"usually better than one, and {passes * len(joined)} times slower; {single} has the first alone. The score "
                "is from before, because validation images are now in the training."
            )
        _export(joined, source, out)
    say(hint)
    shutil.rmtree(record.folder.path / "final", ignore_errors=True)


def _list_leaders(record: SweepRecord) -> list[tuple[Trial, Trained]]:
    """Return the best trial, and others of its architecture near it, with their weights, as long as these are kept.

    A linear probe that is ahead of a fine-tuning by less than a standard error was lucky, as more images help the
    fine-tuning more.
    """
    ranked = [trial for trial in record.trials.ranked() if trial.state == "completed"]
    lead, error = ranked[0].score or 0.0, ranked[0].standard_error
    tuned = [trial for trial in ranked if trial.recipe.linear_probe.trains]
    if tuned and abs(lead - (tuned[0].score or 0.0)) <= error:
        ranked = tuned
    best = ranked[0]
    leaders = [(best, _read_trained(record, best))]
    for trial in ranked[1:]:
        if abs((best.score or 0.0) - (trial.score or 0.0)) > NEAR * best.standard_error:
            break
        try:
            kept = _read_trained(record, trial)
        except UserError:  # only the best few have weights
            break
        if _is_alike(leaders[0][1].recipe, kept.recipe):
            leaders.append((trial, kept))
    return leaders


def _list_members(leaders: Sequence[tuple[Trial, Trained]]) -> list[tuple[Trial, Recipe]]:
    """Return trials to train, with their resolved recipes: of the leaders those that differ in a choice, best first.

    Strengths alone are no difference: what differs makes other mistakes, so its mean is better (docs/benchmarks.md). Then
    the same follow with other seeds. Where the best trained on mirrored images, all predict them too.
    """
    best = leaders[0][1].recipe
    if best.snapshots.is_on:  # it is an ensemble already
        return [(leaders[0][0], best)]
    members: list[tuple[Trial, Recipe]] = []
    for trial, kept in leaders:
        if _choices_of(kept.recipe) not in [_choices_of(recipe) for _, recipe in members]:
            members.append((trial, kept.recipe))
    rounds = product(range(MOST_MEMBERS), members)
    mirrored = {"flip_average": FlipAverage(enabled=True)} if best.flip.probability else {}
    return [(trial, own.model_copy(update={"seed": own.seed + more, **mirrored})) for more, (trial, own) in rounds]


def _choices_of(recipe: Recipe) -> dict[str, object]:
    """Return what a recipe chooses; of a strength only whether there is one."""
    return {name: bool(value) if isinstance(value, float) else value for name, value in recipe.flat().items()}


def _is_alike(first: Recipe, second: Recipe) -> bool:
    """Whether the models of two recipes can be one ensemble: one architecture and one preprocessing."""
    in_model = [name for name, part in first.parts() if isinstance(part, Technique) and part.is_in_model]
    same = ("backbone", "preprocessing", "data", "snapshots", *in_model)
    return all(getattr(first, name) == getattr(second, name) for name in same)


def _read_trained(record: SweepRecord, trial: Trial) -> Trained:
    saved, why = read_weights(record, trial)
    if saved is None:
        raise UserError(f"trial {trial.name} of {record.name} has no weights ({why}), so it cannot be released.")
    return Trained(read_recipe(saved["recipe"]), saved["state_dict"], tuple(saved["classes"]), record.driver.threads)


def _train(
    record: SweepRecord, recipe: Recipe, name: str, say: Callable[[str], None], hint: str, until: float = math.inf
) -> Trained | None:
    """Train on the images of both parts; None if it diverged, or had no time until `until` of the monotonic clock."""
    import torch

    from training.loop.checkpoint import read_checkpoint
    from training.train import train

    folder = record.folder.path / "final"
    folder.mkdir(exist_ok=True)
    resources = share_resources(recipe, count_cpus(), torch.cuda.device_count(), uses_share=False)
    say(f"Training on training and validation images, {plural(recipe.epochs, 'epoch')}: {name}.")
    with interruptible() as interrupted:
        outcome = train(
            recipe,
            folder,
            metric=record.trials.metric,
            resources=resources,
            on_report=lambda report: not interrupted() and time.monotonic() < until,
            release=True,
        )
        if interrupted():
            raise Interrupted(interrupted.number or signal.SIGINT, hint)
    if outcome.state != "completed":
        return None
    weights = read_checkpoint(folder / "best.ckpt")["state_dict"]
    return Trained(outcome.recipe, weights, outcome.classes, resources.threads)


def _export(members: Sequence[Trained], source: Provenance, out: Path) -> None:
    from training.model.ensemble import join_weights

    first = members[0]
    facts: Provenance = {
        **source,
        "best_epoch": first.recipe.epochs,
        "threads": first.threads,
        "mlflow_run_id": None,
        "trained_on": "train and validation",
    }
    weights = join_weights([member.weights for member in members]) if members[1:] else first.weights
    export_model(first.recipe, weights, facts, out)
