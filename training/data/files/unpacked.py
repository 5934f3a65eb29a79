"""Images inside larger files, unpacked once per machine into the user's cache folder, and then read like any others."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_dir

from training.contract.specs import Data, FileData
from training.data.files.assembly import assemble, remark_unlabelled
from training.data.files.cache import cached, key_of_files
from training.data.files.images import ImageData, Remark, name_part
from training.data.files.listing import Listing, is_hidden
from training.data.files.system_files import is_system_content
from training.errors import printable
from training.process.text_files import read_json, recall_json

# Results of `map`, `filter` and `shuffle`, of this data or of another form.
_CACHE = re.compile(r"(cache-|tmp).*\.arrow")
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


def _read(spec: Data, file: Path) -> dict[str, object]:
    if not file.exists():
        return {}
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        spec.refuse(f"{printable(str(file))} cannot be read ({error})", "Save the data set again, or remove this file.")
    return content if isinstance(content, dict) else {}


Sample = tuple[bytes, str]  # the content of an image file, and the name of its class
INDEX = list[tuple[str, str]]  # the name and the class of each image
LARGEST_INDEX_BYTES = 2**31  # ImageNet-21k's has a quarter of it
_IN_A_FOLDER = 1000  # some file systems are slow with more

logger = logging.getLogger(__name__)


def load_packed(
    spec: FileData,
    root: str,
    read: Callable[[str], Iterator[Sample]],
    has_labels: Callable[[str], bool],
    *settings: object,
) -> ImageData:
    """Unpack the images of all files with the data's endings below a folder; the first process of a machine writes them.

    Args:
        spec: The data.
        root: The folder, or an address of the Hugging Face hub.
        read: Yields the samples of a file.
        has_labels: Returns whether a file has a label. A part without labels is left out, unless it is the training part.
        settings: Everything else that the samples depend on.
    """
    found = _find_packed(spec, root)
    keys = {part: key_of_files(files, 1, spec.name, *settings) for part, files in found.items()}
    remarks: list[Remark] = []
    for part in [part for part in found if part != "train"]:
        if not cached("labelled", keys[part], partial(any, map(has_labels, found[part]))):
            del found[part]
            remarks.append(remark_unlabelled(part, "no label", spec))
    listings: dict[str, Listing] = {part: {} for part in found}
    for part, files in found.items():
        for path, label in store(spec, keys[part], partial(_read_all, read, files)):
            listings[part].setdefault(label, []).append(path)
    return replace(assemble(spec, listings), remarks=tuple(remarks))


def _read_all(read: Callable[[str], Iterator[Sample]], files: list[str]) -> Iterator[Sample]:
    samples = chain.from_iterable(map(read, files))
    return ((content, label) for content, label in samples if not is_system_content(content))


def _find_packed(spec: Data, root: str) -> dict[str, list[str]]:
    """Return the files below the root with one of the data's endings, by the part that they or their folders name.

    Without such names, all files are the training part.
    """
    folder = Path(os.path.abspath(os.path.expanduser(root)))
    kinds = " or ".join(spec.endings)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else f"no such folder (looked in {printable(str(folder))})"
        spec.refuse(what, f"Give the folder that has the {kinds} files.")
    found = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(spec.endings) and path.is_file())
    seen = [path for path in found if not any(map(is_hidden, path.relative_to(folder).parts))]
    files = choose_arrow_files(spec, seen)
    if not files:
        spec.refuse(f"the folder has no {kinds} file", "Give the folder that has them.")
    named: dict[str, list[str]] = {}
    for path in files:
        named.setdefault(_name_part(path.relative_to(folder)), []).append(str(path))
    if set(named) == {""}:
        return {"train": named[""]}
    if others := [printable(os.path.relpath(path, folder)) for path in named.pop("", [])]:
        spec.refuse(
            f"{others[0]} names no part, and other files do",
            "Name each file or its folder after train, val or test, or none of them.",
        )
    if "train" not in named:
        spec.refuse(
            f"its files are those of {' and '.join(named)}, and it has no training part",
            "Give data with a file or a folder that is named after train, or with no such names.",
        )
    return named


def _name_part(path: Path) -> str:
    """Return the part that a path names, as in `train/0.tar` and `flowers-train-0000.tar`, or an empty text."""
    words = [word for step in (*path.parts[:-1], path.stem) for word in re.split(r"[^A-Za-z]+", step)]
    return next((part for word in reversed(words) if (part := name_part(word))), "")


def store(spec: Data, key: str, read: Callable[[], Iterator[Sample]]) -> list[tuple[str, str]]:
    """Return the path and the class of each sample, in order; `key` is a digest of everything that they depend on."""
    home = Path(user_cache_dir("technique-search")) / "unpacked"
    folder = home / key
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f"{key}.lock"):
            index = recall_json(folder / "index.json", INDEX, LARGEST_INDEX_BYTES)
            if index is None:
                shutil.rmtree(folder, ignore_errors=True)
                unfinished = home / f"{key}.tmp"
                try:
                    index = _write(unfinished, folder, read())
                finally:
                    shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        spec.refuse(
            f"its images are written once into {printable(str(home))}, which failed ({reason})",
            "Free space there, or set XDG_CACHE_HOME to another folder.",
        )
    return [(str(folder / name), label) for name, label in index]


def _write(unfinished: Path, folder: Path, samples: Iterator[Sample]) -> list[tuple[str, str]]:
    """Write all images under another name, then rename the folder, so that it is complete. Returns its index."""
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    index = []
    for number, (content, label) in enumerate(samples):
        name = f"{number // _IN_A_FOLDER:04d}/{number:07d}{_ending(content)}"
        if number % _IN_A_FOLDER == 0:
            (unfinished / name).parent.mkdir()
        (unfinished / name).write_bytes(content)
        os.utime(unfinished / name, (0, 0))  # the data's identity contains the time, and must not depend on today
        index.append((name, label))
    (unfinished / "index.json").write_text(json.dumps(index), encoding="utf-8")
    unfinished.rename(folder)
    logger.info("Unpacked %d images into %s.", len(index), folder)
    return index


def _ending(content: bytes) -> str:
    if content.startswith(b"\xff\xd8\xff"):
        return ".jpg"
    return ".png" if content.startswith(b"\x89PNG") else ".img"  # decoders look at the content
