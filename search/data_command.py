"""`sweep data`: what a recipe would feed, in numbers and in a picture, before anything is trained."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from training.errors import UserError

PICTURED = 32
LISTED_CLASSES = 20
LISTED_FILES = 50
_DATASETS = ("digits", "cifar10", "cifar100")


def show_data(source: str, overrides: Sequence[str], out: Path, check: bool, speed: bool, console: Any) -> None:
    """Print the data's classes, split, statistics and speed, and write a picture of augmented training images.

    Raises:
        UserError: the data, or what was asked for, is wrong.
    """
    recipe = find_recipe(source, overrides)
    import torch

    from training.data.load import load_data

    data = load_data(recipe.data)
    if check:
        _check(data, console)
        return
    from training.data.check import check_images, count_threads
    from training.resolve import resolve_recipe

    check_images(data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    resolved = resolve_recipe(recipe, data, device)
    _print_parts(data, console)
    _print_statistics(data, resolved, recipe.augmentation.backend, console)
    _draw(data, resolved, device, out)
    console.print(f"Wrote {out}: {PICTURED} training images as the model gets them.")
    if speed:
        _print_speed(data, resolved, device, count_threads() - 1, console)


def find_recipe(source: str, overrides: Sequence[str]) -> Any:
    """A recipe from a data set's name, a folder, a manifest, a recipe's file, or a space: there, the first augmented draw."""
    from spaces.document import did_you_mean
    from spaces.domains import find_holes
    from spaces.draws import RandomTrial
    from spaces.load import bundled_names, load_recipe, load_space
    from training.recipe import read_recipe

    if data := _name_data(source):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{Path(source).stem or 'data'}.yaml"
            file.write_text(f"format: 1\nrecipe:\n  backbone: {{weights: none}}\n  data: {data}\n", encoding="utf-8")
            return load_recipe(file, overrides)
    if not Path(source).exists() and source not in (names := bundled_names()):
        raise UserError(
            f"{source}: there is no such space, data set, folder or file.{did_you_mean(source, [*names, *_DATASETS])}"
        )
    space = load_space(source, overrides)
    if not list(find_holes(space.recipe, ("recipe",))):
        return read_recipe(space.recipe)
    draws = [read_recipe(space.suggest(RandomTrial(seed))) for seed in range(50)]
    return next((recipe for recipe in draws if recipe.augmentation.policy != "none"), draws[0])


def _name_data(source: str) -> str | None:
    """The value of `data` that a word on the command line means, in YAML; None for a recipe or a space."""
    import json

    path = os.path.abspath(os.path.expanduser(source))
    if source in _DATASETS:
        return f"{{name: {source}}}"
    if os.path.isdir(path):
        return f"{{name: image_folder, root: {json.dumps(path, ensure_ascii=False)}}}"
    if source.lower().endswith(".csv"):
        return f"{{name: manifest, path: {json.dumps(path, ensure_ascii=False)}}}"
    return None


def _check(data: Any, console: Any) -> None:
    from training.data.check import find_unreadable
    from training.data.images import ImageFiles

    parts = (data.train.images, data.val.images, data.test.images)
    paths = [path for images in parts if isinstance(images, ImageFiles) for path in images.paths]
    if not paths:
        raise UserError(f"--check: {data.name} has no image files. It reads a folder or a manifest.")
    bad = find_unreadable(paths, whole=True)
    for path, reason in list(bad.items())[:LISTED_FILES]:
        console.print(f"{os.fsencode(path).decode('utf-8', 'replace')}: {reason}", markup=False, soft_wrap=True)
    if len(bad) > LISTED_FILES:
        console.print(f"… and {len(bad) - LISTED_FILES} more.")
    console.print(f"{len(paths)} images read, {len(bad)} cannot be.")
    if bad:
        raise typer.Exit(1)


def _print_parts(data: Any, console: Any) -> None:
    import numpy as np
    from rich.table import Table

    counts = [np.bincount(part.labels, minlength=len(data.classes)) for part in (data.train, data.val, data.test)]
    table = Table("class", *(f"{name}" for name in ("train", "validation", "test")), title=data.name)
    for label in range(min(len(data.classes), LISTED_CLASSES)):
        table.add_row(data.classes[label], *(str(count[label]) for count in counts))
    if len(data.classes) > LISTED_CLASSES:
        table.add_row(f"… {len(data.classes) - LISTED_CLASSES} more", "", "", "")
    table.add_section()
    table.add_row(f"{len(data.classes)} classes", *(str(count.sum()) for count in counts))
    console.print(table)


def _print_statistics(data: Any, recipe: Any, asked: str, console: Any) -> None:
    from training.data.defaults import measure

    side, mean, std = measure(data.train)
    used = recipe.preprocessing
    console.print(f"Shorter side {side} pixels; mean {_levels(mean)}, deviation {_levels(std)} of red, green, blue.")
    console.print(
        f"Fed as {used.image_size}×{used.image_size} ({used.interpolation}, crop {used.crop:g}), mean {_levels(used.mean)}, "
        f"deviation {_levels(used.std)}; augmentation {recipe.augmentation.policy}, "
        f"backend {recipe.augmentation.backend}{' (auto)' if asked == 'auto' else ''}."
    )


def _levels(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _draw(data: Any, recipe: Any, device: str, out: Path) -> None:
    import torch
    from torch import nn

    from training.data.feeding import make_loaders
    from training.data.picture import caption_of, draw_sheet
    from training.isolation import isolated_process
    from training.techniques.base import TrainingSetup
    from training.techniques.mixing import MIXERS, change_batch

    image_size = recipe.preprocessing.image_size
    assert isinstance(image_size, int)  # resolved
    setup = TrainingSetup(nn.Identity(), device, len(data.classes), (), image_size)
    for name in ("random_erasing", *MIXERS, "mixing"):
        if (technique := getattr(recipe, name)).is_on:
            technique.apply(setup)
    images, targets, count = [], [], 0
    loaders = make_loaders(data, recipe, workers=0, device=device)
    try:
        with isolated_process(recipe.seed, torch.get_num_threads()):
            for batch, labels in loaders.train:
                batch, labels = change_batch(setup, batch, labels)
                images.append(batch)
                targets += list(labels)
                count += len(batch)
                if count >= PICTURED:
                    break
    finally:
        loaders.close()
    captions = [caption_of(target, data.classes) for target in targets[:PICTURED]]
    sheet = draw_sheet(torch.cat(images)[:PICTURED], captions, recipe.preprocessing)
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out)


def _print_speed(data: Any, recipe: Any, device: str, workers: int, console: Any) -> None:
    from rich.table import Table

    from training.data.speed import measure_backends

    used = recipe.augmentation.backend
    table = Table("backend", "images/s", title="Feeding")
    for backend, speed in measure_backends(data, recipe, device, workers=workers).items():
        table.add_row(
            f"{backend} ←" if backend == used else backend, speed if isinstance(speed, str) else f"{speed:,.0f}"
        )
    console.print(table)
    console.print(f"On {device}, with {workers} loader worker{'s' * (workers != 1)} where images are not in memory.")
