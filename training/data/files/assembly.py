"""Make the data of a training from the files or the images of its parts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from training.contract.specs import Data, FileData
from training.data.files.check import find_unreadable
from training.data.files.images import ImageData, ImageFiles, ImagePart, Remark, order_names
from training.data.files.listing import EXTENSIONS, Listing, find_bad_name
from training.data.splits import split_groups, split_stratified
from training.errors import printable

HELD_OUT_SHARE = 0.15  # share of the training part for each of validation and test that is missing
SHARE_WITHOUT_TEST = 0.2  # for validation, where no test part is split off

Labelled = tuple[Sequence[str], np.ndarray | ImageFiles]  # the names of the classes of images, and these

logger = logging.getLogger(__name__)


def assemble(spec: FileData, listings: dict[str, Listing], groups: Mapping[str, str] | None = None) -> ImageData:
    """Make the data from the files of each class, by part; parts that are missing are split off the training part.

    `groups` has the group of each file, if there are some: none is divided.
    """
    paths = (path for files in listings.values() for paths in files.values() for path in paths)
    if left_out := find_left_out(spec, paths):
        listings = {
            part: {name: [path for path in paths if path not in left_out] for name, paths in files.items()}
            for part, files in listings.items()
        }
    check_sizes(spec, listings)
    pairs = {part: [(name, path) for name in sorted(files) for path in files[name]] for part, files in listings.items()}
    labelled = {part: ([name for name, _ in of], ImageFiles([path for _, path in of])) for part, of in pairs.items()}
    return replace(split_off(labelled, spec, groups), left_out=tuple(left_out))


def find_left_out(spec: FileData, paths: Iterable[str]) -> dict[str, str]:
    """Return the files that the data skips. Log the first five with their reasons, and the number of others."""
    # A header does not show that the pixels are cut.
    left_out = find_unreadable(list(paths), whole=True) if spec.skip_unreadable else {}
    for path, reason in list(left_out.items())[:5]:
        logger.warning("Left out %s: it cannot be read (%s).", printable(path), reason)
    if len(left_out) > 5:
        logger.warning("Left out %d more, which cannot be read either.", len(left_out) - 5)
    return left_out


def check_sizes(spec: Data, listings: dict[str, Listing]) -> None:
    """Refuse parts with too few images or classes, or with different classes."""
    train = listings["train"]
    if bad := find_bad_name(train):
        spec.refuse(*bad)
    if not train:
        spec.refuse("there is no image in it", "Add images of at least two classes.")
    if len(train) < 2:
        spec.refuse(f"there is only one class, {next(iter(train))!r}", "A classifier needs at least two subfolders.")
    missing = ["validation" if part == "val" else part for part in reversed(spec.missing(listings))]
    needed = 1 + len(missing)
    for name, paths in train.items():
        if len(paths) < needed:
            purpose = f"split {' and '.join(missing)} off" if missing else "train on"
            count = f"{len(paths) or 'no'} image{'s' if len(paths) != 1 else ''}"
            kinds = "" if paths else f" (files that end in {', '.join(EXTENSIONS)})"
            way_out = f"Add images{kinds} to it, or remove the folder."
            spec.refuse(f"class {name!r} has {count}, but needs at least {needed} to {purpose}", way_out)
    for part, files in listings.items():
        if unknown := sorted(files.keys() - train.keys()):
            names = ", ".join(map(repr, unknown))
            spec.refuse(f"{part} has classes that train does not have: {names}", "Use the same folders in all parts.")
        if not any(files.values()):
            spec.refuse(f"its {part} folder holds no image", "Add images to it, or remove the folder.")


def remark_unlabelled(part: str, what: str, spec: Data) -> Remark:
    """Say that a part is not used; `what` is what it has in place of labels."""
    is_drawn = part in spec.missing([])
    instead = f"Images of the training part are the {part} part instead." if is_drawn else f"There is no {part} part."
    return Remark(
        f"{part} has no labels and is left out",
        f"The {part} part has {what}, so it is left out, because no score can be computed without labels. {instead}",
    )


def split_off(labelled: Mapping[str, Labelled], spec: Data, groups: Mapping[str, str] | None = None) -> ImageData:
    """Make the data from parts with names of classes; those that are missing are drawn from the training part, stratified."""
    classes = tuple(sorted(set(labelled["train"][0])))  # what is drawn depends on this order, and stays the same
    number = {name: label for label, name in enumerate(classes)}
    parts = {
        part: ImagePart(np.array([number[name] for name in names], np.int64), images)
        for part, (names, images) in labelled.items()
    }
    train = parts["train"]
    missing = spec.missing(parts)
    of_image = (
        [groups[path] for path in train.images.paths] if groups and isinstance(train.images, ImageFiles) else None
    )
    *drawn, rest = draw_missing(train.labels, len(missing), spec, of_image)
    if of_image and not all(map(len, drawn)):
        spec.refuse(
            f"its {len(set(of_image))} groups are too few or too large to give {' and '.join(missing)} one of their own",
            "Add groups, or set data.layout=folder/class, which divides them between the parts.",
        )
    parts |= {name: train.select(chosen) for name, chosen in zip(missing, drawn, strict=True)}
    test = parts.get("test", train.select(np.array([], int)))
    return ImageData(spec.name, classes, train.select(rest), parts["val"], test).in_order(order_names(classes))


def draw_missing(labels: np.ndarray, count: int, spec: Data, groups: Sequence[str] | None = None) -> list[np.ndarray]:
    """Draw the positions of this number of missing parts; the last set is the rest. A part of groups may get none."""
    share = HELD_OUT_SHARE if spec.split_test else SHARE_WITHOUT_TEST
    if groups is not None:
        return split_groups(labels, groups, (share,) * count, spec.split_seed)
    size = max(int(labels.max()) + 1, round(share * len(labels)))
    return split_stratified(labels, (size,) * count, spec.split_seed)
