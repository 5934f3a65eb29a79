"""`sweep data`: show the data of a recipe in numbers and in a picture, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search.cli.inspect.data_source import (
    ClassRow,
    DataResult,
    FileRow,
    FilesResult,
    InputRow,
    NearCopyRow,
    find_recipe,
)
from training.errors import UserError, printable
from training.process.writable import check_file, complete_file

if TYPE_CHECKING:
    from rich.console import Console

    from training.contract.specs import Data
    from training.data.files.images import ImageData, Remark
    from training.recipe import Recipe

LISTED_CLASSES = 20
LISTED_FILES = 50
LISTED_PAIRS = 10


def show_data(
    source: str, overrides: Sequence[str], out: Path, check: bool, console: Console
) -> DataResult | FilesResult:
    """Print the data's classes, split, oddities and statistics, and draw augmented training images into `out`.

    With `check`, read all image files and name the broken ones instead. Return what was printed, as plain values.
    """
    recipe = find_recipe(source, overrides)
    from training.data.load_data import load_data

    data = load_data(recipe.data)
    if check:
        return _check(data, recipe.data, console)
    from training.data.files.check import check_images
    from training.data.inspection.remarks import are_few_files, list_remarks
    from training.process.resources import find_device

    _check_picture(out, recipe.data)
    check_images(data)
    classes, remarks = _count_classes(data), list_remarks(data, recipe.data)
    _print_parts(data, classes, console)
    _print_remarks(remarks, console)
    pairs = _find_near_copies(data, remarks, console) if are_few_files(data) else []
    # Imported late, because it takes seconds: errors in the data are reported before.
    from training.data.inspection.picture import PICTURED, draw_training
    from training.data.preprocessing.defaults import measure
    from training.resolve import resolve_recipe

    device = find_device()
    resolved = resolve_recipe(recipe, data, device)
    side, mean, std = measure(data.train)
    asked = recipe.augmentation.backend
    console.print(f"Shorter side {side} pixels; mean {_levels(mean)}, deviation {_levels(std)} of red, green, blue.")
    _print_input(given := _describe_input(resolved), asked, console)
    picture = draw_training(data, resolved, device)
    with complete_file("--out", out) as path:
        picture.save(path)
    console.print(f"Wrote {out}: {PICTURED} training images as the model gets them.", markup=False)
    sentences = [remark.sentence for remark in remarks]
    return DataResult(data.name, classes, sentences, side, mean, std, given, str(out), pairs)


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


def _check(data: ImageData, spec: Data, console: Console) -> FilesResult:
    from training.data.files.check import find_unreadable
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
    remarks = list_remarks(data, spec, whole=True)
    _print_remarks(remarks, console)
    pairs = _find_near_copies(data, remarks, console)
    console.print(f"Checked {len(paths)} images: {len(paths) - len(bad)} can be read, {len(bad)} cannot.")
    files = [FileRow(printable(path), reason) for path, reason in bad.items()]
    return FilesResult(data.name, len(paths), files, [remark.sentence for remark in remarks], pairs)


def _find_near_copies(data: ImageData, remarks: list[Remark], console: Console) -> list[NearCopyRow]:
    from training.data.inspection.copies import find_near_copies
    from training.data.inspection.remarks import remark_near_copies

    pairs = find_near_copies(data)
    if not pairs:
        return []
    remarks.append(remark_near_copies(pairs, data))
    _print_remarks(remarks[-1:], console)
    for image, other in pairs[:LISTED_PAIRS]:
        line = f"  {image.name} ({image.part}) is almost {other.name} ({other.part})"
        console.print(line, markup=False, soft_wrap=True)
    if len(pairs) > LISTED_PAIRS:
        console.print(f"  … and {len(pairs) - LISTED_PAIRS:,} more: --json has all.")
    return [NearCopyRow(image.name, image.part, other.name, other.part) for image, other in pairs]


def _count_classes(data: ImageData) -> list[ClassRow]:
    import numpy as np

    counts = [np.bincount(part.labels, minlength=len(data.classes)) for part in (data.train, data.val, data.test)]
    numbers = zip(*(count.tolist() for count in counts), strict=True)
    return [ClassRow(printable(name), *images) for name, images in zip(data.classes, numbers, strict=True)]


def _print_parts(data: ImageData, classes: Sequence[ClassRow], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("class", title=data.name)
    for name in ("train", "validation", "test"):
        table.add_column(name, justify="right")
    for row in classes[:LISTED_CLASSES]:
        table.add_row(Text(row.name), str(row.train), str(row.val), str(row.test))
    if len(classes) > LISTED_CLASSES:
        table.add_row(f"… {len(classes) - LISTED_CLASSES} more", "", "", "")
    table.add_section()
    table.add_row(f"{len(classes)} classes", *(f"{len(part):,}" for part in (data.train, data.val, data.test)))
    console.print(table)
    error = 100 * (0.8 * 0.2 / len(data.val)) ** 0.5
    console.print(f"On these validation images, an accuracy of 80 % has a standard error of {error:.1f} points.")


def _print_remarks(remarks: Sequence[Remark], console: Console) -> None:
    for remark in remarks:
        console.print(f"! {remark.sentence}", markup=False, soft_wrap=not console.is_interactive)


def _describe_input(recipe: Recipe) -> InputRow:
    used, augmentation = recipe.preprocessing.model_dump(include={*InputRow.__annotations__}), recipe.augmentation
    crop, flip = recipe.random_crop.name, recipe.flip.probability
    return InputRow(**used, random_crop=crop, flip=flip, augmentation=augmentation.policy, backend=augmentation.backend)


def _print_input(given: InputRow, asked: str, console: Console) -> None:
    console.print(
        f"Input of the model: {given.image_size}×{given.image_size} ({given.interpolation}, crop {given.crop:g}), "
        f"mean {_levels(given.mean)}, deviation {_levels(given.std)}; random crop {given.random_crop}, flip "
        f"{given.flip:g}, augmentation {given.augmentation}, backend {given.backend}{' (auto)' if asked == 'auto' else ''}."
    )


def _levels(values: Sequence[float] | str) -> str:
    return values if isinstance(values, str) else " ".join(f"{value:.3f}" for value in values)
