"""The user's own images: `root/<class>/…`, or `root/train/<class>/…` with optional `root/val` and `root/test`."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal

from pydantic import Field

from training.contract.specs import FileData
from training.data.files.images import PART_WORDS, PARTS, ImageData, name_part
from training.data.files.listing import find_files, list_loose_images, list_subfolders
from training.data.sources.folder_layout import (
    Layout,
    list_images,
    list_places,
    refuse_one_class,
    remark_inner_classes,
    remark_other_data,
)
from training.errors import printable

_LAYOUT = "Put each part's images into one subfolder per class, as in root/train/<class> and root/val/<class>"
# Folders of test images whose classes are not given, as torchvision and Keras need one.
_NO_CLASS = ("unknown", "unlabeled", "unlabelled", "no_label", "no_labels", "images", "all", "test_images")


class ImageFolder(FileData):
    """A folder of images: `root/<class>/…`, or `root/train` with `root/val` and `root/test` where they exist."""

    name: Literal["image_folder"] = "image_folder"
    root: str = Field(min_length=1, description="Path of the folder.")
    layout: Layout = Field(
        "class",
        exclude_if=lambda layout: layout == "class",
        description="Folders from a part to its images. group/class: the outer folders are groups, such as places or "
        "patients, of which none is divided between parts that are split off; folder/class: they mean nothing.",
    )

    def load(self) -> ImageData:
        """List the images, and split off the parts that have no folder. They are read only to skip unreadable ones."""
        from training.data.files.assembly import assemble, remark_unlabelled

        root = os.path.abspath(os.path.expanduser(self.root))
        folders, unlabelled = _find_parts(self, root)
        found = {part: list_images(folder, self.layout) for part, folder in folders.items()}
        refuse_one_class(self, found["train"])
        groups = found["train"].groups or None
        data = assemble(self, {part: images.listing for part, images in found.items()}, groups)
        remarks = [
            remark_inner_classes(self, self.layout, found["train"], len(self.missing(found))),
            remark_other_data([root, *folders.values()]),
            *(remark_unlabelled(part, "images that are in no folder of a class", self) for part in unlabelled),
        ]
        return replace(
            data,
            not_read=tuple(path for images in found.values() for path in images.not_read),
            unused=tuple(_list_unused(root, folders | unlabelled)),
            remarks=tuple(remark for remark in remarks if remark),
        )


def _find_parts(spec: ImageFolder, root: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the folder of each part that has one, and those without labels, by their parts.

    The root itself is `train` if it contains the classes.
    """
    if not os.path.isdir(root):
        where = "" if spec.root == root else f" (looked in {printable(root)})"
        what = "a file, not a folder" if os.path.exists(root) else f"no such folder{where}"
        spec.refuse(what, "Give the folder that contains one subfolder per class.")
    if os.path.realpath(root).split(os.sep)[1] in ("proc", "sys"):  # their links lead through all files of the machine
        spec.refuse("a folder of the system, not of images", "Give the folder that contains one subfolder per class.")
    folders = list_subfolders(root)
    if not folders:
        what = "images lie in it, but no subfolders" if find_files(root)[0] else "the folder is empty"
        spec.refuse(what, "It must contain one subfolder per class, named after the class, with its images.")
    parts = _assign_folders(spec, root, folders)
    unlabelled = {part: folder for part, folder in parts.items() if part != "train" and _has_no_labels(folder)}
    parts = {part: folder for part, folder in parts.items() if part not in unlabelled}
    for folder in parts.values():
        for place, _ in list_places(folder, spec.layout):
            _refuse_loose_images(spec, place)
    return parts, unlabelled


def _has_no_labels(folder: str) -> bool:
    """Return whether all images of a part lie in its folder itself, or in one folder of it whose name is no class's."""
    folders = list_subfolders(folder)
    if not folders:
        return bool(list_loose_images(folder))
    return len(folders) == 1 and (folders[0].lower() in _NO_CLASS or name_part(folders[0]) == "test")


def _list_unused(root: str, parts: dict[str, str]) -> list[str]:
    """Return the folders with images that lie beside the folders of the parts, and so belong to no part."""
    if root in parts.values():
        return []
    beside = [os.path.join(root, name) for name in list_subfolders(root)]
    return [folder for folder in beside if folder not in parts.values() and find_files(folder)[0]]


def _assign_folders(spec: ImageFolder, root: str, folders: list[str]) -> dict[str, str]:
    named = {part: [name for name in folders if name_part(name) == part] for part in PARTS}
    if any(list_subfolders(os.path.join(root, name)) for name in named["train"]):
        for part, names in named.items():
            if len(names) > 1:
                spec.refuse(f"{' and '.join(names)} both name its {part} part", "Keep one of them, or join them.")
        return {part: os.path.join(root, names[0]) for part, names in named.items() if names}
    _refuse_parts_as_classes(spec, root, folders)
    for name in folders:
        inside = [folder for folder in list_subfolders(os.path.join(root, name)) if name_part(folder)]
        if len(set(map(name_part, inside))) > 1:
            spec.refuse(
                f"class {name!r} is itself divided into {' and '.join(inside)}, which would be mixed",
                f"{_LAYOUT}, or list the images in a manifest with a column split.",
            )
    return {"train": root}


def _refuse_parts_as_classes(spec: ImageFolder, root: str, folders: list[str]) -> None:
    parts = [name for name in folders if name_part(name)]
    if parts == folders and "train" not in map(name_part, parts):
        spec.refuse(f"it has {' and '.join(folders)}, but no train with classes in it", "Add root/train/<class>.")
    misspelt = [name for name in folders if not name_part(name)]  # such as `trian`
    if all(_resembles_part(name) and list_subfolders(os.path.join(root, name)) for name in folders) and misspelt:
        spec.refuse(
            f"it has {' and '.join(folders)}, which look like parts of the data, and {misspelt[0]} is none",
            "Name the parts train, val and test.",
        )
    # A single class may be called "train" or "test", but not two.
    if len(set(map(name_part, parts))) < 2:
        # `seg_train` and `seg_test` alone are parts; among other names, `train_station` and `test_tube` are classes.
        words = [re.findall("[a-z]+", name.lower()) for name in folders]
        mentioned = [{PART_WORDS[word] for word in of_name if word in PART_WORDS} for of_name in words]
        parts = folders if all(mentioned) and len(set().union(*mentioned)) > 1 else []
    if parts:
        spec.refuse(
            f"its folders {' and '.join(map(repr, parts))} look like parts of the data, not like classes",
            f"{_LAYOUT}, rename the classes that have such names, or list the images in a manifest.",
        )


def _resembles_part(name: str) -> bool:
    # Swapped letters are the most frequent error, and weigh much in a ratio of short words.
    word = name.strip().lower()
    is_swapped = any(sorted(word) == sorted(part) for part in PART_WORDS)
    return is_swapped or bool(get_close_matches(word, PART_WORDS, 1, 0.75))


def _refuse_loose_images(spec: ImageFolder, folder: str) -> None:
    if loose := list_loose_images(folder):
        lie = f"{len(loose)} images lie" if len(loose) > 1 else "an image lies"
        spec.refuse(
            f"{lie} in {printable(folder)} itself, outside the class folders ({printable(os.path.basename(loose[0]))})",
            "Move each image into the folder of its class, or remove it.",
        )
