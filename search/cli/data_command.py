"""`sweep data`: show the data of a recipe in numbers and in a picture, before anything is trained."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from analysis.export.writable import cannot_write, check_file
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from training.contract.specs import Data
    from training.data.files.images import ImageData
    from training.data.inspection.remarks import Remark
    from training.recipe import Recipe

LISTED_CLASSES = 20
LISTED_FILES = 50
_DATASETS = ("digits", "cifar10", "cifar100")
_KINDS = {
    "image_folder": "the folder itself, as in sweep data photos",
    "manifest": "its file, as in sweep data list.csv",
    "parquet": "the folder of its files, as in sweep data photos",
    "webdataset": "the folder of its files, as in sweep data photos",
}


def show_data(source: str, overrides: Sequence[str], out: Path, check: bool, speed: bool, console: Console) -> None:
    """Print the data's classes, split, oddities and statistics, and draw augmented training images into `out`.

    With `check`, read all image files and name the broken ones instead. With `speed`, measure the backends as well.

    Raises:
        UserError: the data or an option is wrong.
    """
    recipe = find_recipe(source, overrides)
    from training.data.sources.load_data import load_data

    data = load_data(recipe.data)
    if check:
        _check(data, console)
        return
    from training.data.files.check import check_images
    from training.data.inspection.remarks import list_remarks
    from training.process.resources import count_cpus, find_device

    _check_picture(out, recipe.data)
    check_images(data)
    _print_parts(data, console)
    _print_remarks(list_remarks(data), console)
    # Imported late, because it takes seconds: errors in the data are reported before.
    from training.data.inspection.picture import PICTURED, draw_training
    from training.resolve import resolve_recipe

    device = find_device()
    resolved = resolve_recipe(recipe, data, device)
    _print_statistics(data, resolved, recipe.augmentation.backend, console)
    picture = draw_training(data, resolved, device)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        picture.save(out)
    except OSError as error:
        raise cannot_write("--out", out, error) from None
    console.print(f"Wrote {out}: {PICTURED} training images as the model gets them.", markup=False)
    if speed:
        _print_speed(data, resolved, device, count_cpus() - 1, console)


def _check_picture(out: Path, spec: Data) -> None:
    """Refuse a picture that cannot be written, or that the next command would read as an image of the data."""
    from PIL import Image

    check_file("--out", out)
    endings = Image.registered_extensions()
    if endings.get(out.suffix.lower()) not in Image.SAVE:
        raise UserError(
            f"--out={out}: {out.suffix or 'an empty ending'} is not the ending of a picture. Name it {out.stem}.png."
        )
    root = getattr(spec, "root", None) if spec.name == "image_folder" else None
    if root and Path(root).resolve() in out.resolve().parents:
        raise UserError(f"--out={out}: this file would be among the images of {root}. Name a file in another folder.")


def find_recipe(source: str, overrides: Sequence[str]) -> Recipe:
    """Return a recipe from a data set's name, a folder, a manifest, a recipe's file or a space.

    For a space it is the one of some random draws that augments most: by a crop, by flips and by a policy.
    """
    from spaces.load import bundled_names, load_recipe, load_space
    from spaces.parameters.domains import find_parameters
    from spaces.parameters.draws import RandomTrial
    from spaces.reading.document import did_you_mean
    from training.data.sources.listing import is_image_name
    from training.recipe import read_recipe

    if data := _name_data(source):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{Path(source).stem or 'data'}.yaml"
            file.write_text(f"format: 1\nrecipe:\n  backbone: {{weights: none}}\n  data: {data}\n", encoding="utf-8")
            return load_recipe(file, overrides)
    if not os.path.exists(source) and source in _KINDS:
        raise UserError(f"{source} is a kind of data, not a data set: give {_KINDS[source]}.")
    if is_image_name(source):
        raise UserError(f"{source}: one image is not a data set. Give the folder that has one subfolder per class.")
    if not os.path.exists(source) and source not in (names := bundled_names()):
        raise UserError(
            f"{source}: there is no such space, data set, folder or file.{did_you_mean(source, [*names, *_DATASETS])}"
        )
    space = load_space(source, overrides)
    if not list(find_parameters(space.recipe, ("recipe",))):
        return read_recipe(space.recipe)
    draws = [read_recipe(space.suggest(RandomTrial(seed))) for seed in range(50)]
    return max(draws, key=_count_augmentations)


def _count_augmentations(recipe: Recipe) -> int:
    on = (recipe.random_crop.name != "none", recipe.flip.probability > 0, recipe.augmentation.policy != "none")
    return sum(on)


def _name_data(source: str) -> str | None:
    """Return the value of `data`, in YAML, for a word on the command line; None for a recipe or a space."""
    import json

    from training.recipe import Recipe

    path = os.path.abspath(os.path.expanduser(source))
    if source in _DATASETS or f"data.{source}" in Recipe.own():
        return f"{{name: {source}}}"
    if os.path.isdir(path):
        return f"{{name: {_kind_of(path)}, root: {json.dumps(path, ensure_ascii=False)}}}"
    if source.lower().endswith(".csv"):
        return f"{{name: manifest, path: {json.dumps(path, ensure_ascii=False)}}}"
    return None


def _kind_of(folder: str) -> str:
    """Return the kind of data in a folder, by the files in it and in its subfolders."""
    kinds = {".parquet": "parquet", ".arrow": "parquet", ".tar": "webdataset"}
    names = (path.suffix.lower() for pattern in ("*", "*/*") for path in Path(folder).glob(pattern))
    return next((kinds[ending] for ending in names if ending in kinds), "image_folder")


def _check(data: ImageData, console: Console) -> None:
    from training.data.files.check import find_unreadable
    from training.data.files.decode import printable
    from training.data.files.images import ImageFiles
    from training.data.inspection.remarks import list_remarks

    parts = (data.train.images, data.val.images, data.test.images)
    paths = [path for images in parts if isinstance(images, ImageFiles) for path in images.paths]
    if not paths:
        raise UserError(f"--check: {data.name} has no image files. It reads folders, manifests, Parquet and tar files.")
    bad = find_unreadable(paths, whole=True)
    for path, reason in list(bad.items())[:LISTED_FILES]:
        console.print(f"{printable(path)}: {reason}", markup=False, soft_wrap=True)
    if len(bad) > LISTED_FILES:
        console.print(f"… and {len(bad) - LISTED_FILES} more.")
    _print_remarks(list_remarks(data, whole=True), console)
    console.print(f"Checked {len(paths)} images: {len(paths) - len(bad)} can be read, {len(bad)} cannot.")
    if bad:
        raise typer.Exit(1)


def _print_parts(data: ImageData, console: Console) -> None:
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    from training.data.files.decode import printable

    counts = [np.bincount(part.labels, minlength=len(data.classes)) for part in (data.train, data.val, data.test)]
    table = Table("class", *(f"{name}" for name in ("train", "validation", "test")), title=data.name)
    for label in range(min(len(data.classes), LISTED_CLASSES)):
        table.add_row(Text(printable(data.classes[label])), *(str(count[label]) for count in counts))
    if len(data.classes) > LISTED_CLASSES:
        table.add_row(f"… {len(data.classes) - LISTED_CLASSES} more", "", "", "")
    table.add_section()
    table.add_row(f"{len(data.classes)} classes", *(str(count.sum()) for count in counts))
    console.print(table)


def _print_remarks(remarks: Sequence[Remark], console: Console) -> None:
    for remark in remarks:
        console.print(f"! {remark.sentence}", markup=False, soft_wrap=True)


def _print_statistics(data: ImageData, recipe: Recipe, asked: str, console: Console) -> None:
    from training.data.preprocessing.defaults import measure

    side, mean, std = measure(data.train)
    used = recipe.preprocessing
    console.print(f"Shorter side {side} pixels; mean {_levels(mean)}, deviation {_levels(std)} of red, green, blue.")
    console.print(
        f"Input of the model: {used.image_size}×{used.image_size} ({used.interpolation}, crop {used.crop:g}), "
        f"mean {_levels(used.mean)}, deviation {_levels(used.std)}; random crop {recipe.random_crop.name}, flip "
        f"{recipe.flip.probability:g}, augmentation {recipe.augmentation.policy}, "
        f"backend {recipe.augmentation.backend}{' (auto)' if asked == 'auto' else ''}."
    )


def _levels(values: Sequence[float] | str) -> str:
    return values if isinstance(values, str) else " ".join(f"{value:.3f}" for value in values)


def _print_speed(data: ImageData, recipe: Recipe, device: str, workers: int, console: Console) -> None:
    from rich.table import Table

    from training.data.inspection.speed import TURN_SECONDS, TURNS, measure_backends

    used = recipe.augmentation.backend
    table = Table("backend", "images/s", "min", "max", title="Data loading")
    for backend, speed in measure_backends(data, recipe, device, workers=workers).items():
        cells = [speed] if isinstance(speed, str) else [f"{it:,.0f}" for it in (speed.median, speed.least, speed.most)]
        table.add_row(f"{backend} ←" if backend == used else backend, *cells)
    console.print(table)
    console.print(
        f"Medians of {TURNS} turns of {TURN_SECONDS:g} s in alternation, on {device}, with {workers} loader "
        f"worker{'s' * (workers != 1)} if the images are not in memory. If minimum and maximum differ much, the machine is "
        "busy."
    )
