"""Train the model to release: the confirmed recipe on training and validation images, for all its epochs."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.formatting import plural
from search.followup.replications.replication import Replicated
from search.followup.trial_export import describe_trial, source_of
from search.runner.interrupt import Interrupted, interruptible
from training.contract.specs import FILE_DATA
from training.errors import UserError
from training.process.resources import count_cpus, find_device, split_cpus
from training.recipe import read_recipe

if TYPE_CHECKING:
    from rich.console import Console


def train_release(replicated: Replicated, console: Console) -> Path:
    """Train the recipe that `sweep confirm` scored, export its last epoch, and return the folder of the export.

    Raises:
        UserError: the confirmed weights are gone, or the training diverged.
        Interrupted: a signal ended it.
    """
    import torch

    from analysis.export.bundle import export_model
    from training.loop.checkpoint import read_checkpoint
    from training.train import Resources, train

    record, test = replicated.record, replicated.record.test
    assert test is not None  # the caller has just concluded the confirmation
    trial, own = replicated.trials.by_number[test.trial], record.folder.path / "final"
    confirmed, why = replicated.weights(trial)
    if confirmed is None:
        raise UserError(
            f"trial {trial.name} of {record.name} has no weights ({why}), so its recipe cannot be released."
        )
    recipe = read_recipe(confirmed["recipe"])
    own.mkdir(exist_ok=True)
    threads, workers = split_cpus(count_cpus(), recipe.data.name not in FILE_DATA)
    resources = Resources(threads, workers, find_device(), torch.cuda.device_count())
    console.print(
        f"Training on training and validation images, {plural(recipe.epochs, 'epoch')}: {describe_trial(record, trial)}."
    )
    with interruptible() as interrupted:
        outcome = train(
            recipe,
            own,
            metric=replicated.trials.metric,
            resources=resources,
            on_report=lambda report: not interrupted(),
            release=True,
        )
    if outcome.state == "stopped":
        raise Interrupted(
            interrupted.number or signal.SIGINT, f"Continue with: sweep confirm {replicated.event.of} --final"
        )
    if outcome.state == "diverged":
        raise UserError(
            f"{record.name}: its recipe diverged on training and validation images together, so there is no model to "
            f"release. The confirmed model is the best there is: exports/{record.name}."
        )
    out = Path("exports") / f"{replicated.event.of}-final"
    source = replace(
        source_of(record, trial, test, confirmed["classes"]),
        best_epoch=recipe.epochs,
        threads=threads,
        run_id=None,
        release=True,
    )
    export_model(outcome.recipe, read_checkpoint(own / "best.ckpt")["state_dict"], source, out)
    console.print(f"Exported the model to release to {out}: recipe, weights, summary, card.", markup=False)
    return out
