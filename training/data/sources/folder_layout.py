"""Folders of images by their layout: `root/<class>/…`, or with folders between the root and the classes."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from training.contract.specs import FileData
from training.data.files.images import Remark
from training.data.files.listing import Listing, find_files, list_other_data, list_subfolders
from training.errors import name_some, printable

# What the folders from a part to its classes are: a group is not divided between parts, another folder means nothing.
Layout = Literal["class", "group/class", "folder/class", "group/folder/class", "folder/folder/class"]


@dataclass
class LaidOut:
    """The images of one part."""

    listing: Listing = field(default_factory=dict)
    not_read: list[str] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # of each image, if the layout has groups
    below: dict[str, list[list[str]]] = field(default_factory=dict)  # by class: the folders in it to each image


def list_places(folder: str, layout: Layout) -> list[tuple[str, str]]:
    """Return each folder that contains folders of classes, with the group that it is in, and those above them."""
    found = places = [(folder, "")]
    for step in layout.split("/")[:-1]:
        places = [
            (os.path.join(place, name), name if step == "group" else group)
            for place, group in places
            for name in list_subfolders(place)
        ]
        found = found + places
    return found


def list_images(folder: str, layout: Layout) -> LaidOut:
    """Return the images of each class in a folder, at any depth below the class's."""
    found, depth = LaidOut(), folder.count(os.sep) + layout.count("/")
    for place, group in list_places(folder, layout):
        if place.count(os.sep) < depth:
            continue
        for name in list_subfolders(place):
            images, others = find_files(os.path.join(place, name))
            found.listing.setdefault(name, []).extend(images)
            found.not_read += others
            start = len(os.path.join(place, name)) + 1
            found.below.setdefault(name, []).extend(path[start:].split(os.sep)[:-1] for path in images)
            if "group" in layout:
                found.groups |= dict.fromkeys(images, group)
    found.listing = {name: sorted(found.listing[name]) for name in sorted(found.listing)}
    return found


def refuse_one_class(spec: FileData, images: LaidOut) -> None:
    """Refuse a single class, if the classes seem to be the folders in it."""
    (name, below), *others = images.below.items() or [("", [])]
    inner = sorted({folders[0] for folders in below if folders})
    if not others and len(inner) > 1:
        spec.refuse(
            f"there is only one class, {name!r}, which has the subfolders {name_some(inner)}",
            f"If these are the classes, give the folder {printable(name)} as data.root.",
        )


def remark_inner_classes(spec: FileData, layout: Layout, images: LaidOut, missing: int) -> Remark | None:
    """Say that the classes may be one or two levels deeper, because their folders have the same subfolders.

    `images` are the training images by this layout; so many `missing` parts are split off from them.
    """
    for depth, between in ((1, ""), (2, "folder/")):
        if not (inner := _find_shared(images, depth)):
            continue
        outer = sorted(images.below)
        added = ("group/", "folder/") if _can_divide(spec, images, depth, missing) else ("folder/",)
        layouts = [layout.replace("class", f"{first}{between}class") for first in added]
        deeper = next((name for name in layouts if name in get_args(Layout)), None)
        if deeper is None:
            return None
        command = f"sweep data {shlex.quote(printable(getattr(spec, 'root', '')))} data.layout={deeper}"
        effect = "the outer ones as groups, of which none is divided between parts"
        if "group" not in deeper:
            effect = (
                "divides the outer ones between the parts, because they are too few to keep each in one part, as "
                "group/class does"
            )
        return Remark(
            f"the classes {name_some(outer, 2)} have the same subfolders",
            f"The classes {name_some(outer)} have subfolders of the same names: {name_some(inner)}. If these are the classes, "
            f"set data.layout={deeper}, which takes the inner folders as classes and {effect}: {command}",
        )
    return None


def remark_other_data(folders: Sequence[str]) -> Remark | None:
    """Name the archives and tables that lie beside the folders of the classes or of the parts."""
    names = list(dict.fromkeys(name for folder in dict.fromkeys(folders) for name in list_other_data(folder)))
    if not names:
        return None
    lie = "lies" if len(names) == 1 else "lie"
    return Remark(
        f"{name_some(names, 1)} not read",
        f"{name_some(names)} {lie} beside the folders of images and {'is' if len(names) == 1 else 'are'} not read: the data "
        "are the folders alone. Move an archive or a table into a folder of its own to read it instead.",
    )


def _find_shared(images: LaidOut, depth: int) -> list[str]:
    """Return the names at this depth, if most images lie below them, and most of them are in several classes."""
    names = {
        name: {folders[depth - 1] for folders in below if len(folders) >= depth} for name, below in images.below.items()
    }
    deep = sum(len(folders) >= depth for below in images.below.values() for folders in below)
    counts = Counter(name for inner in names.values() for name in inner)
    shared = {name: count for name, count in counts.items() if count > 1}
    # A single name is no set of classes: each class may have its images in a folder `images`.
    usual = 2 * sum(shared.values()) >= counts.total() and 2 * deep >= sum(map(len, images.below.values()))
    return sorted(shared) if len(shared) > 1 and usual else []


def _can_divide(spec: FileData, images: LaidOut, depth: int, missing: int) -> bool:
    """Return whether each missing part gets an image if the classes of now are groups."""
    import numpy as np

    from training.data.files.assembly import draw_missing

    pairs = [
        (folders[depth - 1], name) for name, below in images.below.items() for folders in below if len(folders) >= depth
    ]
    labels = np.unique([label for label, _ in pairs], return_inverse=True)[1]
    return all(map(len, draw_missing(labels, missing, spec, [group for _, group in pairs])))
