"""Trainings of a frozen backbone on stored features, beside the same trainings on images.

    python benchmarks/features.py [--rounds 3] [--threads 1] [--model the]

Each round trains every recipe twice, on images and on features, in alternating order, so that other work on the machine
disturbs both alike. The features are stored by one training before the rounds, which is timed too. The figures are
medians of the rounds with the lowest and the highest one. A step and an epoch are those after the first epoch; an epoch
is training, validation and checkpoints; a trial is everything from the recipe to the last checkpoint. Steps and epochs
are in wall-clock seconds, trials also in CPU seconds, which other work disturbs less. --model takes the models whose
names begin so. It needs no network.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import timm
import torch
from rich.console import Console
from rich.table import Table

from training.data.files.pixel_store import LIMIT_VARIABLES
from training.process.resources import Resources
from training.recipe import Recipe, read_recipe
from training.train import train

Values = dict[str, Any]
PARTS = ("train_seconds", "evaluation_seconds", "checkpoint_seconds")

MODELS: dict[str, Values] = {
    "the demo": {
        "data": {"name": "digits", "train_size": 200},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "batch_size": 32,
        "epochs": 9,
    },
    "ResNet-18, 64×64": {
        "data": {"name": "digits", "train_size": 256},
        "preprocessing": {"image_size": 64},
        "backbone": {"name": "resnet18"},  # `main` makes a file of weights
        "batch_size": 64,
        "epochs": 3,
    },
}
VARIANTS: dict[str, Values] = {
    "last": {"unfreeze": {"level": "last"}},
    "most": {"unfreeze": {"level": "most"}},
    "most, augmented": {"unfreeze": {"level": "most"}, "augmentation": {"policy": "affine_colour"}},
}


def measure(recipe: Recipe, resources: Resources, *, features: bool) -> dict[str, float]:
    """Return seconds of a step, an epoch and the whole trial, and the CPU seconds of the trial."""
    os.environ[LIMIT_VARIABLES["features"]] = "4096" if features else "0"
    wall, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        metrics = [report.metrics for report in train(recipe, Path(folder), resources=resources).reports]
    trial, busy = time.perf_counter() - wall, time.process_time() - cpu
    assert isinstance(recipe.batch_size, int)
    steps = [recipe.batch_size / epoch["images_per_second"] for epoch in metrics[1:]]
    ends = [sum(epoch[part] for part in PARTS) for epoch in metrics]
    # The checkpoint of an epoch counts in the metrics of the next one.
    epochs = [after - before for before, after in pairwise(ends)]
    return {"step": median(steps), "epoch": median(epochs), "trial": trial, "trial, CPU": busy}


def compare(name: str, variant: str, rounds: int, resources: Resources, table: Table) -> None:
    recipe = read_recipe({**MODELS[name], **VARIANTS[variant]})
    first = measure(recipe, resources, features=True)
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(rounds):
        for features in (False, True) if number % 2 else (True, False):
            runs[features].append(measure(recipe, resources, features=features))
    for what in first:
        images, stored = ([run[what] for run in runs[features]] for features in (False, True))
        ratios = sorted(image / feature for image, feature in zip(images, stored, strict=True))
        seconds = [f"{1000 * median(values):,.1f}" for values in (images, stored)]
        before = f"{1000 * first[what]:,.1f}" if what.startswith("trial") else ""
        table.add_row(
            name, variant, what, *seconds, before, f"{median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="")
    options = parser.parse_args()
    resources = Resources(threads=options.threads)
    table = Table(title=f"milliseconds, {options.rounds} rounds, {options.threads} thread(s)")
    for column in (
        "model",
        "recipe",
        "of a",
        "on images",
        "on features",
        "first, stores them",
        "ratio",
        "of the rounds",
    ):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache  # otherwise the features of an earlier call are there already
        MODELS["ResNet-18, 64×64"]["backbone"]["weights"] = weights = os.path.join(cache, "resnet18.pt")
        torch.save(timm.create_model("resnet18").state_dict(), weights)
        measure(read_recipe(MODELS["the demo"]), resources, features=False)  # the first training of a process is slower
        for name in (name for name in MODELS if name.startswith(options.model)):
            for variant in VARIANTS:
                compare(name, variant, options.rounds, resources, table)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
