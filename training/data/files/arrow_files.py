"""The Arrow files of a data set of Hugging Face's `datasets`, without the caches that it writes beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.contract.specs import Data
from training.errors import printable
from training.process.text_files import read_json

_CACHE = re.compile(
    r"(cache-|tmp).*\.arrow"
)  # results of `map`, `filter` and `shuffle`, of this data or of another form
_SHARD = r"(-\d+-of-\d+)?\.arrow"


def choose_arrow_files(spec: Data, files: Sequence[Path]) -> list[Path]:
    """Return the files that are the data, in the same order; files of other endings stay.

    In each folder these are the files that `state.json` lists, else those named after a split of `dataset_info.json`, else
    all but caches.
    """
    of_folder: dict[Path, list[Path]] = {}
    for file in files:
        if file.suffix.lower() == ".arrow":
            of_folder.setdefault(file.parent, []).append(file)
    dropped = {file for folder, inside in of_folder.items() for file in set(inside) - _choose(spec, folder, inside)}
    return [file for file in files if file not in dropped]


def _choose(spec: Data, folder: Path, files: Sequence[Path]) -> set[Path]:
    if (listed := _read_state(spec, folder / "state.json")) is not None:
        if absent := sorted(listed - {file.name for file in files}):
            spec.refuse(f"{printable(str(folder))} has no {absent[0]}, which its state.json lists", "Get it again.")
        return {file for file in files if file.name in listed}
    splits = _read(spec, folder / "dataset_info.json").get("splits")
    names = "|".join(map(re.escape, splits if isinstance(splits, dict) else ()))
    ours = {file for file in files if names and re.fullmatch(rf"(.*-)?({names}){_SHARD}", file.name)}
    # Files of a user may have such names too; beside no other file, they are the data.
    return ours or {file for file in files if not _CACHE.fullmatch(file.name)} or set(files)


def _read_state(spec: Data, file: Path) -> set[str] | None:
    """Return the names that `Dataset.save_to_disk` has listed, or None if it did not write this file."""
    state = _read(spec, file)
    if state.get("_indices_data_files"):
        spec.refuse(
            f"{printable(str(file))} means only some rows of its files, by a table of indices",
            "Save the data set again with a newer version of datasets.",
        )
    files = state.get("_data_files")
    if not isinstance(files, list):
        return None
    return {str(entry["filename"]) for entry in files if isinstance(entry, dict) and "filename" in entry}


def _read(spec: Data, file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        spec.refuse(f"{printable(str(file))} cannot be read ({error})", "Save the data set again, or remove this file.")
    return content if isinstance(content, dict) else {}
