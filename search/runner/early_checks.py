"""What can be refused before Ray starts and before anything is made: machine, storage, weights, and a head on noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from search.runner.cluster import fit_to_cluster, plan_demand, this_machine
from search.runner.preparation import inputs_of
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe

LEVEL = "unfreeze.level"
NOISE = "with backbone.weights=none it trains a head on random features, which learns little more than chance"
WAY_OUT = f"Give the backbone weights, or use {LEVEL}=full."


def check_early(
    space: Space, storage: Path, cpus: float | None, gpus: float | None, say: Callable[[str], None]
) -> None:
    """Refuse what this machine surely cannot do, and fetch weights, with a line of their own, before all else.

    Raises:
        UserError: more CPUs or GPUs than there are, a storage that cannot be written, or weights that cannot be had.
    """
    demand = plan_demand([this_machine()], cpus, gpus)
    fit_to_cluster(space, can_bf16=True, has_gpus=demand.gpus > 0, devices=demand.devices)
    folder = nearest_folder(storage)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--storage={storage}: {folder} is not a folder that can be written to. Name another.")
    backbones = dict.fromkeys(recipe.backbone for recipe in inputs_of(space))
    if any(backbone.weights not in ("none", "letters") for backbone in backbones):
        say("looking for the weights of the backbone")  # importing torch takes seconds
        from training.model.weights import fetch_early

        for backbone in backbones:
            fetch_early(backbone, say)


def nearest_folder(path: Path) -> Path:
    """The path itself where it exists, else what is there above it."""
    return next(found for found in (path, *path.parents) if found.exists())


def leave_out_noise(space: Space) -> tuple[Space, list[str]]:
    """Take a head alone on random features out of a space, unless nothing else is asked for; and say so in sentences."""
    levels = space.values_of(LEVEL)
    if "none" not in space.values_of("backbone.weights") or "last" not in levels:
        return space, []
    if space.values_of("backbone.weights") != {"none"} or levels == {"last"}:
        return space, [f"{LEVEL}=last: {NOISE}. {WAY_OUT}"]
    return space.without(LEVEL, {"last"}), [
        f"Left out of the space: {LEVEL}=last ({NOISE}). Ask for it alone to have it: {LEVEL}=last."
    ]


def warn_of_noise(recipe: Recipe) -> list[str]:
    """The same of one recipe, in at most one sentence."""
    is_noise = recipe.backbone.weights == "none" and recipe.unfreeze.deepest == "last"
    return [f"{LEVEL}=last: {NOISE}. {WAY_OUT}"] if is_noise else []
