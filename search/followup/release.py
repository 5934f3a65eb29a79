"""Train the model to release: the confirmed recipe on training and validation images, for all its epochs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from search.followup.replication import Replicated, describe_trial
from search.followup.trial_export import source_of
from search.runner.interrupt import Interrupted, interruptible
from search.runner.worker import split_cpus
from training.contract.specs import FILE_DATA
from training.recipe import read_recipe


def train_release(listed: Replicated, console: Any) -> None:
    """Train the recipe that `sweep confirm` scored, and export its last epoch."""
    import torch

    from analysis.export.bundle import export_model
    from training.loop.checkpoint import read_checkpoint
    from training.train import Resources, train

    record, test = listed.record, listed.record.test
    assert test is not None  # the caller has just concluded the confirmation
    trial, own = listed.trials.by_number[test.trial], record.folder.path / "final"
    confirmed = read_checkpoint(record.folder.trial(trial.number) / "best.ckpt")
    recipe = read_recipe(confirmed["recipe"])
    own.mkdir(exist_ok=True)
    threads, workers = split_cpus(os.cpu_count() or 1, recipe.data.name not in FILE_DATA)
    resources = Resources(threads, workers, "cuda" if torch.cuda.is_available() else "cpu", torch.cuda.device_count())
    console.print(
        f"Training on training and validation images, {recipe.epochs} epochs: {describe_trial(record, trial)}."
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
        raise Interrupted(
            interrupted.number or signal.SIGINT, f"Continue with: sweep confirm {listed.event.of} --final"
        )
    if outcome.state == "diverged":
        console.print("The training on training and validation images diverged, so there is no model to release.")
        raise typer.Exit(1)
    out = Path("exports") / f"{listed.event.of}-final"
    source = replace(
        source_of(record, trial, test, confirmed["classes"]),
        best_epoch=recipe.epochs,
        threads=threads,
        run_id=None,
        release=True,
    )
    export_model(outcome.recipe, read_checkpoint(own / "best.ckpt")["state_dict"], source, out)
    console.print(f"Exported the model to release to {out}: recipe, weights, summary, card.", markup=False)
