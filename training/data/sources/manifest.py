"""A CSV table of image files with labels; a group (one patient, one video) is never divided."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from training.contract.specs import FileData
from training.data.files.images import PARTS, ImageData, ImageFiles, name_part
from training.data.files.listing import find_bad_name, is_no_label
from training.data.files.system_files import is_system_path
from training.errors import printable
from training.process.text_files import find_encoding, refuse_irregular

_COLUMNS = ("path", "label", "split", "group")


@dataclass(frozen=True)
class TableLine:
    line: int
    path: str
    label: str
    split: str
    group: str


class Manifest(FileData):
    """A table of image files: CSV with the columns path and label, and optionally split and group."""

    name: Literal["manifest"] = "manifest"
    path: str = Field(min_length=1, description="The CSV file.")
    root: str | None = Field(
        None, min_length=1, description="Folder to which the paths are relative; null: the folder of the file."
    )

    def load(self) -> ImageData:
        """List the images, and split them if the table has no split; groups are not divided."""
        from training.data.files.assembly import find_left_out, remark_unlabelled, split_off

        rows, unlabelled = _read(self)
        left_out = find_left_out(self, (row.path for row in rows))
        rows = [row for row in rows if row.path not in left_out]
        parts = {part: [row for row in rows if row.split == part] for part in PARTS}
        if not any(row.split for row in rows):
            parts |= _split(self, rows, self.missing([]))
        elif missing := [part for part in self.missing([]) if part in unlabelled]:
            parts |= _split(self, parts["train"], missing)
        _check_parts(self, parts)
        if bad := find_bad_name(sorted({row.label for row in parts["train"]})):
            self.refuse(*bad)
        read = {part: ([row.label for row in of], ImageFiles([row.path for row in of])) for part, of in parts.items()}
        remarks = tuple(remark_unlabelled(part, "no label in any line", self) for part in unlabelled)
        return replace(split_off(read, self), left_out=tuple(left_out), remarks=remarks)


def _read(spec: Manifest) -> tuple[list[TableLine], tuple[str, ...]]:
    path = os.path.abspath(os.path.expanduser(spec.path))
    root = os.path.abspath(os.path.expanduser(spec.root)) if spec.root else os.path.dirname(path)
    try:
        refuse_irregular(path)
        with open(path, encoding=find_encoding(path), newline="") as file:
            table = csv.DictReader(file)
            _check_columns(spec, list(table.fieldnames or []))
            lines = [(table.line_num, values) for values in table]
            rows = [_read_row(spec, root, *line) for line in lines if not is_system_path(line[1]["path"] or "", root)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        spec.refuse(f"it cannot be read ({reason})", "Give a CSV file in UTF-8 with the columns path and label.")
    if not rows:
        other = ", except of thumbnails, bins or snapshots, which are not read" if lines else ""
        spec.refuse(f"it has no line below its header{other}", "Add a line for each image.")
    unlabelled = _find_unlabelled(rows)
    rows = [row for row in rows if row.split not in unlabelled]
    _check_rows(spec, rows)
    return rows, unlabelled


def _find_unlabelled(rows: list[TableLine]) -> tuple[str, ...]:
    labels = {part: {row.label for row in rows if row.split == part} for part in PARTS}
    return tuple(
        part
        for part in ("test", "val")
        if labels[part] and all(map(is_no_label, labels[part])) and not labels[part] & (labels["train"] - {""})
    )


def _check_columns(spec: Manifest, names: list[str]) -> None:
    if missing := [name for name in ("path", "label") if name not in names]:
        have = ", ".join(names) or "none"
        way_out = "Name them in its first line."
        if len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), None)):
            way_out = f"Separate its columns by commas, not by {other!r}."
        spec.refuse(f"it has no column {' and no column '.join(missing)} (it has {have})", way_out)
    if twice := next((name for name in names if names.count(name) > 1 and name in _COLUMNS), None):
        spec.refuse(f"it has the column {twice} twice", "Keep one of them.")
    if unknown := [name for name in names if name not in _COLUMNS and name.lower().strip() in _COLUMNS]:
        spec.refuse(f"its column {unknown[0]!r} is not known", f"Write it {unknown[0].lower().strip()}.")


def _read_row(spec: Manifest, root: str, line: int, values: dict[str, str | None]) -> TableLine:
    path, label, split, group = ((values.get(name) or "").strip() for name in _COLUMNS)
    if not path:
        spec.refuse(f"line {line} has no path", "Fill it in, or remove the line.")
    if split and not name_part(split):
        spec.refuse(f"line {line} has split={split}", f"Write {', '.join(PARTS[:-1])} or {PARTS[-1]}.")
    if None in values:
        spec.refuse(f"line {line} has more values than the first line has columns", "Quote values that contain commas.")
    return TableLine(line, os.path.join(root, os.path.expanduser(path)), label, name_part(split) or "", group)


def _check_rows(spec: Manifest, rows: list[TableLine]) -> None:
    first: dict[str, TableLine] = {}
    part: dict[str, TableLine] = {}
    for row in rows:
        if not row.label:
            spec.refuse(f"line {row.line} has no label", "Fill it in, or remove the line.")
        if (before := first.setdefault(os.path.normpath(row.path), row)) is not row:
            spec.refuse(f"lines {before.line} and {row.line} name the same file", "Remove one of them.")
        if row.group and (before := part.setdefault(row.group, row)).split != row.split:
            spec.refuse(
                f"group {row.group!r} is in {before.split or 'no part'} (line {before.line}) and in "
                f"{row.split or 'no part'} (line {row.line})",
                "A group may not span two parts: its images would be both trained on and tested.",
            )
    marked = [row for row in rows if row.split]
    if marked and len(marked) < len(rows):
        bare = next(row for row in rows if not row.split)
        spec.refuse(f"line {bare.line} has no split, and others have", "Fill in all of them, or none.")
    # Only the first 1,000 files are checked: a table can be long, and its disk slow.
    if absent := next((row for row in rows[:1000] if not os.path.exists(row.path)), None):
        spec.refuse(f"line {absent.line}: there is no file {printable(absent.path)}", "Correct it, or set data.root.")


def _split(spec: Manifest, rows: list[TableLine], missing: list[str]) -> dict[str, list[TableLine]]:
    """Draw missing parts by groups, stratified as far as the groups allow; the rest is the training part."""
    import numpy as np

    from training.data.files.assembly import draw_missing

    labels = np.unique([row.label for row in rows], return_inverse=True)[1]
    groups = [row.group or f"line {row.line}" for row in rows]
    chosen = draw_missing(labels, len(missing), spec, groups) if rows else [np.array([], int)] * (len(missing) + 1)
    return {name: [rows[index] for index in of] for name, of in zip((*missing, "train"), chosen, strict=True)}


def _check_parts(spec: Manifest, parts: dict[str, list[TableLine]]) -> None:
    known = {row.label for row in parts["train"]}
    if len(known) < 2:
        contents = f"only one class, {next(iter(known))!r}" if known else "no image"
        spec.refuse(f"its training part has {contents}", "A classifier needs at least two.")
    for name in ("val", "test"):
        if not parts[name] and name in spec.missing([]):
            spec.refuse(f"its {name} part has no image", "Assign images to it, add images, or leave the column out.")
        if new := next((row for row in parts[name] if row.label not in known), None):
            spec.refuse(f"label {new.label!r} (line {new.line}) is in {name} only", "A class needs an image in train.")
