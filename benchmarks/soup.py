"""What a greedy soup gains over the best single trial, on the demo's data.

    python benchmarks/soup.py [PATH=VALUE]... [--seeds 8] [--trials 10] [--keep 5] [--folder FOLDER]

Each seed has its own images, initial weights and random recipes of the space `quick`, which PATH=VALUE changes. Every
recipe is trained to the end; the soup is made of the best ones, as `sweep soup` makes it. The test split is used here
only, to measure what a choice on the validation part is worth. With --folder the trainings are kept, and are not
repeated. It needs no network.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from analysis.effects.intervals import paired_interval
from spaces.load import load_space
from spaces.parameters.draws import RandomTrial
from training.evaluate import load_same_data, predict_part
from training.loop.checkpoint import read_checkpoint
from training.recipe import read_recipe
from training.soup import Ingredient, cook, mix
from training.train import train

METRIC = "val_accuracy"


def train_all(seed: int, trials: int, folder: Path, overrides: list[str]) -> tuple[list[Ingredient], tuple[str, ...]]:
    """Train random recipes, and return them, best first, with the names of the classes."""
    space = load_space("quick", [f"seed={seed}", f"data.split_seed={seed}", *overrides])
    draws, found = RandomTrial(seed=seed), []
    classes: tuple[str, ...] = ()
    for number in range(trials):
        own = folder / str(seed) / str(number)
        own.mkdir(parents=True, exist_ok=True)
        outcome = train(read_recipe(space.suggest(draws)), own, metric=METRIC)
        if outcome.state == "completed":
            saved, classes = read_checkpoint(own / "best.ckpt"), outcome.classes
            ingredient = Ingredient(str(number), read_recipe(saved["recipe"]), saved["state_dict"])
            found.append((outcome.reports[-1].score, ingredient))
    ranked = sorted(found, key=lambda pair: -pair[0])
    return [ingredient for _, ingredient in ranked], classes


def measure(seed: int, trials: int, keep: int, folder: Path, overrides: list[str]) -> tuple[int, dict[str, float]]:
    """Return the number of averaged trials, and the accuracies of the soup and of the best single trial."""
    ingredients, classes = train_all(seed, trials, folder, overrides)
    cooked = cook(ingredients[:keep], classes, METRIC)
    chosen = [one for one in ingredients if one.name in cooked.names]
    data = load_same_data(ingredients[0].recipe, classes)
    scores = {"soup, validation": cooked.metrics[METRIC], "single, validation": cooked.metrics[METRIC] - cooked.gain}
    for name, members in (("soup", chosen), ("single", ingredients[:1])):
        logits, labels = predict_part(mix(members, data, len(classes)), data.test, ingredients[0].recipe)
        scores[f"{name}, test"] = float((logits.argmax(1) == labels).double().mean())
    return len(chosen), scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="PATH=VALUE", help="changes of the space, as in sweep run")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--trials", type=int, default=10, help="recipes that are trained with each seed")
    parser.add_argument("--keep", type=int, default=5, help="best ones among them that the soup may use")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    scores: dict[str, list[float]] = {}
    table = Table("seed", "averaged", "soup, validation", "single, validation", "soup, test", "single, test")
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(arguments.seeds):
            folder = arguments.folder or Path(temporary)
            count, found = measure(seed, arguments.trials, arguments.keep, folder, arguments.overrides)
            for name, value in found.items():
                scores.setdefault(name, []).append(value)
            table.add_row(str(seed), str(count), *(f"{found[str(head.header)]:.2%}" for head in table.columns[2:]))
            print(f"seed {seed}: {count} averaged, {found}", flush=True)
    console = Console()
    console.print(table)
    for part in ("validation", "test"):
        pair = {name: scores[f"{name}, {part}"] for name in ("soup", "single")}
        gain = paired_interval(pair, "soup", "single")
        console.print(f"Gain on {part}: {gain.mean:+.2%} ({gain.low:+.2%} to {gain.high:+.2%})")


if __name__ == "__main__":
    main()
