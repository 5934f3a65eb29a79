"""Images that moved: check that they are those of the sweep, and write their new place into its ledger."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ledger.events import DataMoved, Dataset
from ledger.folder import SweepFolder
from ledger.formatting import plural
from ledger.record import SweepRecord
from spaces.load import change_recipe
from training.contract.specs import Data
from training.data.files.away import PLACES, find_missing
from training.errors import UserError, printable
from training.process.text_files import unpack

NAMED = 3  # files of each change that a refusal names


def move_data(record: SweepRecord, overrides: Sequence[str], say: Callable[[str], object]) -> SweepRecord:
    """Note the place of the images that `data.root=FOLDER` names, and return the sweep with it."""
    if not overrides:
        return record
    for override in overrides:
        if override.partition("=")[0].strip().removeprefix("recipe.") not in [f"data.{name}" for name in PLACES]:
            raise UserError(
                f"{override}: a sweep keeps its space; here only data.root and data.path can be set, for images that "
                "moved. To change other values, start a new sweep."
            )
    from training.data.load_data import absolute

    before = record.space.baselines()[0]
    spec = absolute(change_recipe(before, overrides).data)
    after, was = spec.model_dump(include=set(PLACES)), before.data.model_dump(include=set(PLACES))
    places = {name: str(place) for name, place in after.items() if place != was.get(name)}
    if not places:
        return record
    _check_data(record, spec)
    record.append(DataMoved(places=places))
    say(f"The images of {record.name} are now at {' and '.join(places.values())}.")
    return SweepRecord(record.folder, record.events)


def follow_move(record: SweepRecord, source: SweepRecord) -> SweepRecord:
    """Return a replication whose images are where those of its sweep are now, if they moved."""
    moves = [event for event in source.events if isinstance(event, DataMoved)]
    if not moves or record.space.recipe["data"] == source.space.recipe["data"]:
        return record
    record.append(moves[-1])
    return SweepRecord(record.folder, record.events)


def check_images(record: SweepRecord, is_local: bool) -> None:
    """Refuse to train where the images of a sweep are no longer at their place, or are others.

    The machines of a cluster look at their images when they are prepared, see `check_same`.
    """
    if not is_local:
        return
    spec = record.space.baselines()[0].data
    if missing := find_missing(spec):
        name, place = missing
        raise UserError(
            f"data.{name}={printable(place)}: the images of {record.name} are no longer there. If they moved, add "
            f"their new place to the command, as in data.{name}=NEW/FOLDER."
        )
    if spec.reads_files:
        _check_data(record, spec)


def _check_data(record: SweepRecord, spec: Data) -> None:
    if record.header.dataset is None:
        return
    from training.data.identity import identify, list_files
    from training.data.load_data import load_data

    data = load_data(spec)
    check_same(record, identify(data, spec), lambda: list_files(data, spec))


def check_same(record: SweepRecord, here: Dataset, list_here: Callable[[], Mapping[str, str]]) -> None:
    """Refuse images that are not those with which a sweep began; another place and other times are no difference.

    `here` describes the images, and `list_here` returns their files.
    """
    known = record.header.dataset
    if known is None or known["digest"] == here["digest"]:
        return
    files = read_files(record.folder)
    now = list_here() if files else {}
    if known.get("content") == here["content"] and files == now:
        return
    had, has = _describe(known), _describe(here)
    differences = _describe_changes(files, now) or "labels, parts, or names, sizes or contents of files differ"
    counts = f"now they are {has}, and the sweep began with {had}; " if had != has else ""
    spec = record.space.baselines()[0].data
    field = next((name for name in PLACES[::-1] if getattr(spec, name, None)), "root")
    raise UserError(
        f"data.{field}={printable(str(here['source']))}: these are not the images of {record.name}: {counts}{differences}. "
        f"Its trials can be compared on the same images only: name the folder that has them with data.{field}=FOLDER, or "
        f"start a new sweep with --warm-start {record.name}."
    )


def keep_files(folder: SweepFolder, files: Mapping[str, str]) -> None:
    """Write the names, sizes and checksums of a sweep's images into its folder."""
    if files:
        text = "".join(f"{facts}\t{name}\0" for name, facts in files.items())
        with suppress(OSError):  # without it a refusal names no files; a full disk is noticed by the ledger
            folder.images.write_bytes(gzip.compress(text.encode(errors="surrogateescape"), mtime=0))


def read_files(folder: SweepFolder) -> dict[str, str]:
    """Return what `keep_files` wrote; nothing if the file is missing or damaged."""
    try:
        text = unpack(folder.images.read_bytes()).decode(errors="surrogateescape")
    except (OSError, ValueError):
        return {}
    return {name: facts for line in text.split("\0")[:-1] for facts, _, name in [line.partition("\t")]}


def _describe_changes(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    changes = {
        "added": sorted(now.keys() - then.keys()),
        "removed": sorted(then.keys() - now.keys()),
        "changed": sorted(name for name in then.keys() & now.keys() if then[name] != now[name]),
    }
    parts = []
    for word, names in changes.items():
        if names and then:
            more = ", …" if len(names) > NAMED else ""
            parts.append(f"{plural(len(names), 'file')} {word} ({', '.join(map(printable, names[:NAMED]))}{more})")
    return ", ".join(parts)


def _describe(dataset: Dataset) -> str:
    images = sum(int(dataset.get(f"{part}_images") or 0) for part in ("train", "val", "test"))
    return f"{plural(images, 'image')} in {dataset.get('classes')} classes"
