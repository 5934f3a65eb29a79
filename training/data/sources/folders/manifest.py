"""A CSV table of image files with labels; a group (one patient, one video) is never divided."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from training.contract.specs import Manifest
from training.data.files.check import find_unreadable
from training.data.files.decode import printable, refuse_irregular
from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.data.sources.folders.image_folder import HELD_OUT_SHARE, log_left_out
from training.data.sources.folders.parts import PARTS, name_part
from training.data.sources.group_splits import split_groups
from training.errors import UserError

_COLUMNS = ("path", "label", "split", "group")


@dataclass(frozen=True)
class Row:
    line: int
    path: str
    label: str
    split: str
    group: str


def load_manifest(spec: Manifest) -> ImageData:
    """List the images of a manifest, and split them if it has no split; groups are not divided.

    Raises:
        UserError: the table cannot be used; the message names the wrong line or what is missing.
    """
    rows = _read(spec)
    left_out: dict[str, str] = {}
    if spec.skip_unreadable:
        left_out = find_unreadable([row.path for row in rows])
        log_left_out(left_out)
        rows = [row for row in rows if row.path not in left_out]
    parts = {part: [row for row in rows if row.split == part] for part in PARTS}
    if not any(row.split for row in rows):
        parts = _split(spec, rows)
    _check_parts(spec, parts)
    classes = tuple(sorted({row.label for row in parts["train"]}))
    number = {label: index for index, label in enumerate(classes)}
    images = {
        part: ImagePart(np.array([number[row.label] for row in of], np.int64), ImageFiles([row.path for row in of]))
        for part, of in parts.items()
    }
    return ImageData(spec.name, classes, images["train"], images["val"], images["test"], left_out=tuple(left_out))


def _read(spec: Manifest) -> list[Row]:
    path = os.path.abspath(os.path.expanduser(spec.path))
    root = os.path.abspath(os.path.expanduser(spec.root)) if spec.root else os.path.dirname(path)
    try:
        refuse_irregular(path)
        with open(path, encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            _check_columns(spec, table.fieldnames or [])
            rows = [_read_row(spec, root, table.line_num, values) for values in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        refuse(spec, f"it cannot be read ({reason})", "Give a CSV file in UTF-8 with the columns path and label.")
    if not rows:
        refuse(spec, "it has no line below its header", "Add a line for each image.")
    _check_rows(spec, rows)
    return rows


def _check_columns(spec: Manifest, found: object) -> None:
    names = list(found) if isinstance(found, (list, tuple)) else []
    if missing := [name for name in ("path", "label") if name not in names]:
        have = ", ".join(names) or "none"
        way_out = "Name them in its first line."
        if len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), None)):
            way_out = f"Separate its columns by commas, not by {other!r}."
        refuse(spec, f"it has no column {' and no column '.join(missing)} (it has {have})", way_out)
    if twice := next((name for name in names if names.count(name) > 1 and name in _COLUMNS), None):
        refuse(spec, f"it has the column {twice} twice", "Keep one of them.")
    if unknown := [name for name in names if name not in _COLUMNS and name.lower().strip() in _COLUMNS]:
        refuse(spec, f"its column {unknown[0]!r} is not known", f"Write it {unknown[0].lower().strip()}.")


def _read_row(spec: Manifest, root: str, line: int, values: dict[str, str | None]) -> Row:
    path, label, split, group = ((values.get(name) or "").strip() for name in _COLUMNS)
    for name, value in (("path", path), ("label", label)):
        if not value:
            refuse(spec, f"line {line} has no {name}", "Fill it in, or remove the line.")
    if split and not name_part(split):
        refuse(spec, f"line {line} has split={split}", f"Write {', '.join(PARTS[:-1])} or {PARTS[-1]}.")
    if None in values:
        refuse(
            spec, f"line {line} has more values than the first line has columns", "Quote values that contain commas."
        )
    return Row(line, os.path.join(root, os.path.expanduser(path)), label, name_part(split) or "", group)


def _check_rows(spec: Manifest, rows: list[Row]) -> None:
    first: dict[str, Row] = {}
    part: dict[str, Row] = {}
    for row in rows:
        if (before := first.setdefault(os.path.normpath(row.path), row)) is not row:
            refuse(spec, f"lines {before.line} and {row.line} name the same file", "Remove one of them.")
        if row.group and (before := part.setdefault(row.group, row)).split != row.split:
            refuse(
                spec,
                f"group {row.group!r} is in {before.split or 'no part'} (line {before.line}) and in "
                f"{row.split or 'no part'} (line {row.line})",
                "A group may not span two parts: its images would be both trained on and tested.",
            )
    marked = [row for row in rows if row.split]
    if marked and len(marked) < len(rows):
        bare = next(row for row in rows if not row.split)
        refuse(spec, f"line {bare.line} has no split, and others have", "Fill in all of them, or none.")
    # Only the first 1,000 files are checked: a table can be long, and its disk slow.
    if absent := next((row for row in rows[:1000] if not os.path.exists(row.path)), None):
        refuse(
            spec,
            f"line {absent.line}: there is no file {printable(absent.path)}",
            "Correct the path, or set data.root.",
        )


def _split(spec: Manifest, rows: list[Row]) -> dict[str, list[Row]]:
    """Draw validation and test by groups, stratified as far as the groups allow."""
    labels = np.unique([row.label for row in rows], return_inverse=True)[1]
    groups = [row.group or f"line {row.line}" for row in rows]
    chosen = split_groups(labels, groups, (HELD_OUT_SHARE, HELD_OUT_SHARE), spec.split_seed)
    names = ("test", "val", "train")
    return {name: [rows[index] for index in of] for name, of in zip(names, chosen, strict=True)}


def _check_parts(spec: Manifest, parts: dict[str, list[Row]]) -> None:
    known = {row.label for row in parts["train"]}
    if len(known) < 2:
        found = f"only one class, {next(iter(known))!r}" if known else "no image"
        refuse(spec, f"its training part has {found}", "A classifier needs at least two.")
    for name in ("val", "test"):
        if not parts[name]:
            refuse(
                spec,
                f"its {name} part has no image",
                "Assign images to it, add images or groups, or leave the column out.",
            )
        if new := next((row for row in parts[name] if row.label not in known), None):
            refuse(
                spec, f"label {new.label!r} (line {new.line}) is in {name} only", "Each class needs an image in train."
            )


def refuse(spec: Manifest, what: str, way_out: str) -> NoReturn:
    raise UserError(f"data.path={printable(spec.path)}: {what}. {way_out}")
