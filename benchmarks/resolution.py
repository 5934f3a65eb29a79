"""Whether evaluation_size and progressive_resizing help on photographs, with a ResNet from random weights.

    python benchmarks/resolution.py --photos FOLDER [--seeds 4] [--epochs 12] [--train 2000] [--size 48]

FOLDER has `train/<class>` and `test/<class>`. Each seed draws its training images and initial weights. One training with
random_crop resized is scored on the test images at several sizes; evaluation_size changes no weights. Progressive
resizing has more epochs than its baseline, so that both take about the same time; the accuracy is that of the last epoch.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from analysis.effects.seed_intervals import paired_interval
from training.evaluate import load_same_data, predict_part, read_trained, restore_model
from training.recipe import Recipe, read_recipe
from training.train import train

FACTORS = (1.0, 1.17, 1.33)
CROP = {"random_crop": {"name": "resized", "min_area": 0.25}}
START = {"progressive_resizing": {"start": 0.5}}
LONGER = 1.25  # epochs of progressive resizing, divided by those of the baseline


def accuracy(recipe: Recipe, saved: dict[str, Any], classes: tuple[str, ...]) -> float:
    """Return the accuracy of a checkpoint on the test images, with the preprocessing of the recipe."""
    model = restore_model(recipe, saved["state_dict"], len(classes))
    logits, labels = predict_part(model, load_same_data(recipe, classes).test, recipe)
    return float((logits.argmax(1) == labels).double().mean())


def run(values: dict[str, Any], factors: tuple[float, ...] = (1.0,)) -> tuple[float, list[float]]:
    """Return the seconds of a training, without its evaluations, and its accuracy at each factor of evaluation_size."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(read_recipe(values), Path(folder), metric="val_accuracy", score="last")
        saved = read_trained(Path(folder) / "best.ckpt")
        recipe = read_recipe(saved["recipe"])
        sized = [recipe.model_copy(update={"evaluation_size": _factor(factor)}) for factor in factors]
        scores = [accuracy(one, saved, outcome.classes) for one in sized]
        return outcome.reports[-1].metrics["train_seconds"], scores


def _factor(factor: float) -> object:
    return read_recipe({"evaluation_size": {"factor": factor}}).evaluation_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--train", type=int, default=2000, help="number of training images")
    parser.add_argument("--size", type=int, default=48, help="side of the images in training")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    scores: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    for seed in range(arguments.seeds):
        common = {
            "data": {"name": "image_folder", "root": str(arguments.photos), "train_size": arguments.train},
            "preprocessing": {"image_size": arguments.size},
            "backbone": {"name": "resnet10t", "weights": "none"},
            "flip": {"probability": 0.5},
            "batch_size": 64,
            "epochs": arguments.epochs,
            "optimizer": {"name": "momentum", "lr": 0.05, "weight_decay": 5e-4},
            "schedule": {"name": "cosine", "warmup_epochs": 1.0},
            "seed": seed,
        }
        _, found = run({**common, **CROP}, FACTORS)
        for factor, score in zip(FACTORS, found, strict=True):
            scores.setdefault(f"evaluated at {factor:g}×", []).append(score)
        longer = {"epochs": round(LONGER * arguments.epochs)}
        for name, values in (("full size", {}), ("progressive", START | longer)):
            seconds, (score,) = run({**common, **values})
            scores.setdefault(name, []).append(score)
            times.setdefault(name, []).append(seconds)
        print(f"seed {seed}: { {name: round(one[-1], 4) for name, one in scores.items()} }", flush=True)
    for name, base in (("evaluated at 1.17×", "evaluated at 1×"), ("evaluated at 1.33×", "evaluated at 1×")):
        report(name, base, scores)
    report("progressive", "full size", scores)
    ratio = [one / other for one, other in zip(times["progressive"], times["full size"], strict=True)]
    print(f"time of progressive / full size: {min(ratio):.2f} to {max(ratio):.2f}")


def report(name: str, base: str, scores: dict[str, list[float]]) -> None:
    gain = paired_interval({one: scores[one] for one in (name, base)}, name, base)
    mean = sum(scores[base]) / len(scores[base])
    print(f"{name} over {base} ({mean:.1%}): {gain.mean:+.1%} ({gain.low:+.1%} to {gain.high:+.1%})")


if __name__ == "__main__":
    main()
