"""Checks before Ray starts and before any file is written: machine, storage, weights, and a head on random features."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ledger.settings import Settings
from search.runner.machines.capacity import plan_demand
from search.runner.machines.cluster import fit_to_cluster, this_machine
from search.runner.machines.preparation import inputs_of, load_checked
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe

LEVEL = "unfreeze.level"
NOISE = "with backbone.weights=none it trains only a head on random features, so its accuracy is hardly above chance"
WAY_OUT = f"Give the backbone weights, or use {LEVEL}=full."


def check_early(
    space: Space, storage: Path, cpus: float | None, gpus: float | None, say: Callable[[str], None]
) -> None:
    """Refuse a sweep that cannot run on this machine, and fetch the weights, with a line about it."""
    demand = plan_demand([this_machine()], cpus, gpus)
    fit_to_cluster(space, can_bf16=True, has_gpus=demand.gpus > 0, devices=demand.devices)
    folder = nearest_folder(storage)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--storage={storage}: {folder} is not a folder that can be written to. Name another folder.")
    backbones = dict.fromkeys(recipe.backbone for recipe in inputs_of(space))
    if any(backbone.weights not in ("none", "letters") for backbone in backbones):
        say("checking the weights of the backbone")  # importing torch takes seconds
        from training.model.weights import fetch_early

        for backbone in backbones:
            fetch_early(backbone, say)


def check_data(space: Space) -> None:
    """Check the data before anything is started. Data is never a search parameter."""
    load_checked(space.baselines()[0])


def check_packing(settings: Settings, has_gpus: bool) -> None:
    """Refuse `auto` for a device that trials do not use."""
    if settings.gpus_per_trial == "auto" and not has_gpus:
        raise UserError("--gpus-per-trial=auto: there is no GPU here. Give --cpus-per-trial auto, or leave it out.")
    if settings.packs and settings.gpus_per_trial != "auto" and has_gpus:
        raise UserError(
            "--cpus-per-trial=auto: with GPUs, the CPUs follow from the number of trials on each. Give --gpus-per-trial "
            "auto."
        )


def nearest_folder(path: Path) -> Path:
    """Return the path if it exists, else its nearest existing parent."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def leave_out_noise(space: Space) -> tuple[Space, list[str]]:
    """Remove the level that trains only a head on random features, unless the space has no other level.

    Returns:
        The space, and at most one sentence about it.
    """
    levels = space.values_of(LEVEL)
    if "none" not in space.values_of("backbone.weights") or "last" not in levels:
        return space, []
    if space.values_of("backbone.weights") != {"none"} or levels == {"last"}:
        return space, [f"{LEVEL}=last: {NOISE}. {WAY_OUT}"]
    return space.without(LEVEL, {"last"}), [
        f"Removed from the space: {LEVEL}=last ({NOISE}). To search it anyway, make it the only level: {LEVEL}=last."
    ]


def warn_of_noise(recipe: Recipe) -> list[str]:
    """Return at most one sentence: the same warning for one recipe."""
    is_noise = recipe.backbone.weights == "none" and recipe.unfreeze.deepest == "last"
    return [f"{LEVEL}=last: {NOISE}. {WAY_OUT}"] if is_noise else []
