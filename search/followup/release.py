"""The model to release: the confirmed recipe on training and validation images together, every epoch of it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from search.core.folder import SweepFolder
from search.followup.confirmation import read_test
from search.followup.replication import describe_trial, read_list
from search.followup.trial_export import source_of
from search.runner.interrupt import Interrupted, interruptible
from search.runner.worker import split_cpus
from training.contract.specs import FILE_DATA
from training.recipe import read_recipe


def train_release(folder: SweepFolder, console: Any) -> None:
    """Train the recipe that `sweep confirm` scored, keep its last epoch, and export that; `folder` is of the confirmation."""
    import torch

    from analysis.export.bundle import export_model
    from training.loop.checkpoint import read_checkpoint
    from training.train import Resources, train

    test, listed = read_test(folder), read_list(folder)
    assert test is not None  # it was just concluded
    trial, own = listed.trials.by_number[test["trial"]], folder.path / "final"
    confirmed = read_checkpoint(folder.trial(trial.number) / "best.ckpt")
    recipe = read_recipe(confirmed["recipe"])
    own.mkdir(exist_ok=True)
    threads, workers = split_cpus(os.cpu_count() or 1, recipe.data.name not in FILE_DATA)
    resources = Resources(threads, workers, "cuda" if torch.cuda.is_available() else "cpu", torch.cuda.device_count())
    console.print(
        f"Training on training and validation images, {recipe.epochs} epochs: {describe_trial(folder, trial)}."
    )
    with interruptible() as interrupted:
        outcome = train(
            recipe,
            own,
            metric=listed.trials.metric,
            resources=resources,
            on_report=lambda report: not interrupted(),
            release=True,
        )
    if outcome.state == "stopped":
        raise Interrupted(interrupted.number or signal.SIGINT, f"Go on with it: sweep confirm {listed.of} --final")
    if outcome.state == "diverged":
        console.print("It diverged on training and validation images together, so there is no model to release.")
        raise typer.Exit(1)
    out = Path("exports") / f"{listed.of}-final"
    source = replace(
        source_of(folder, trial, test, confirmed["classes"]),
        best_epoch=recipe.epochs,
        threads=threads,
        run_id=None,
        release=True,
    )
    export_model(outcome.recipe, read_checkpoint(own / "best.ckpt")["state_dict"], source, out)
    console.print(f"Exported the model to release to {out}: recipe, weights, summary, card.", markup=False)
