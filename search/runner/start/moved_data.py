"""Images that moved: check that they are those of the sweep, and write their new place into its ledger."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger.events import DataMoved, Dataset
from ledger.formatting import plural
from ledger.record import SweepRecord
from spaces.load import change_recipe
from training.contract.specs import Data
from training.errors import UserError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from training.data.files.images import ImageData

PLACES = ("root", "path")  # the fields of data that name a folder or a file


def move_data(record: SweepRecord, overrides: Sequence[str], console: Console) -> SweepRecord:
    """Note the place of the images that `data.root=FOLDER` names, and return the sweep with it.

    Raises:
        UserError: another field is set, the images there are not those of the sweep, or a driver runs it.
    """
    if not overrides:
        return record
    for override in overrides:
        if override.partition("=")[0].strip().removeprefix("recipe.") not in [f"data.{name}" for name in PLACES]:
            raise UserError(
                f"{override}: a sweep keeps its space; here only data.root and data.path can be set, for images that "
                "moved. To change other values, start a new sweep."
            )
    from training.data.load_data import absolute, load_data

    before = record.space.baselines()[0]
    spec = absolute(change_recipe(before, overrides).data)
    after, was = spec.model_dump(include=set(PLACES)), before.data.model_dump(include=set(PLACES))
    places = {name: str(place) for name, place in after.items() if place != was.get(name)}
    if not places:
        return record
    if (known := record.header.dataset) is not None:
        _check_same(record.name, known, spec, load_data(spec))
    record.append(DataMoved(places=places))
    console.print(f"The images of {record.name} are now at {' and '.join(places.values())}.", markup=False)
    return SweepRecord(record.folder, record.events)


def follow_move(record: SweepRecord, source: SweepRecord) -> SweepRecord:
    """Return a replication whose images are where those of its sweep are now, if they moved."""
    moves = [event for event in source.events if isinstance(event, DataMoved)]
    if not moves or record.space.recipe["data"] == source.space.recipe["data"]:
        return record
    record.append(moves[-1])
    return SweepRecord(record.folder, record.events)


def check_images(record: SweepRecord, address: str | None) -> None:
    """Refuse to train where the images of a sweep are no longer at their place; a cluster is not looked at.

    Raises:
        UserError: they are not there; the message says how to name the new place.
    """
    if address is not None:
        return
    data = record.space.baselines()[0].data
    for name in PLACES:
        place = getattr(data, name, None)
        if data.reads_files and place and "://" not in place and not os.path.exists(place):
            raise UserError(
                f"data.{name}={printable(place)}: the images of {record.name} are no longer there. If they moved, add "
                f"their new place to the command, as in data.{name}=NEW/FOLDER."
            )


def _check_same(sweep: str, known: Dataset, spec: Data, data: ImageData) -> None:
    from training.data.identity import digest_at, identify

    here = identify(data, spec)
    if "content" in known:
        is_same, way_out = known["content"] == here["content"], ""
    else:  # the ledger of an earlier version has a digest with paths and times only
        then, now = str(known["source"]), str(here["source"])
        if getattr(spec, "path", None):
            then, now = os.path.dirname(then), os.path.dirname(now)
        is_same = digest_at(data, now, then) == known["digest"]
        way_out = " A copy must keep the times of the files, as that of `cp -a` does."
    if not is_same:
        had, has = _describe(known), _describe(here)
        what = f"they are {has}, and the sweep had {had}" if had != has else "a file has another name, size or content"
        field = next(name for name in PLACES[::-1] if getattr(spec, name, None))
        raise UserError(
            f"data.{field}={printable(getattr(spec, field))}: these are not the images of {sweep}: {what}. Name the "
            f"folder that has them unchanged.{way_out}"
        )


def _describe(dataset: Dataset) -> str:
    images = sum(int(dataset.get(f"{part}_images") or 0) for part in ("train", "val", "test"))
    return f"{plural(images, 'image')} in {dataset.get('classes')} classes"
