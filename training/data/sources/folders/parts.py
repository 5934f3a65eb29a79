"""Decide which folders of a data set are its parts and which are its classes."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches

from training.contract.specs import ImageFolder
from training.data.files.decode import printable
from training.data.sources.folders.listing import find_files, list_loose_images, list_subfolders, refuse

PARTS = ("train", "val", "test")

_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
_PART = re.compile(rf"({'|'.join(_WORDS)})(?:[ _-]?(?:set|data|images))?")
_LAYOUT = "Put each part's images into one subfolder per class, as in root/train/<class> and root/val/<class>"


def name_part(name: str) -> str | None:
    """Return the part that a folder or a value of `split` names, in any case, or None."""
    found = _PART.fullmatch(name.strip().lower())
    return _WORDS[found[1]] if found else None


def find_parts(spec: ImageFolder, root: str) -> dict[str, str]:
    """Return the folder of each part that has one; the root itself is `train` if it contains the classes.

    Raises:
        UserError: the folder is missing or empty, or parts and classes cannot be distinguished.
    """
    if not os.path.isdir(root):
        where = "" if spec.root == root else f" (looked in {printable(root)})"
        what = "a file, not a folder" if os.path.exists(root) else f"no such folder{where}"
        refuse(spec, what, "Give the folder that contains one subfolder per class.")
    folders = list_subfolders(root)
    if not folders:
        what = "images lie in it, but no subfolders" if find_files(root)[0] else "the folder is empty"
        refuse(
            spec, what, "It must contain one subfolder per class, named after the class, with the images of that class."
        )
    parts = _assign_folders(spec, root, folders)
    for folder in parts.values():
        _refuse_loose_images(spec, folder)
    return parts


def list_unused(root: str, parts: dict[str, str]) -> list[str]:
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
                refuse(spec, f"{' and '.join(names)} both name its {part} part", "Keep one of them, or join them.")
        return {part: os.path.join(root, names[0]) for part, names in named.items() if names}
    _refuse_parts_as_classes(spec, root, folders)
    for name in folders:
        _refuse_parts_in_class(spec, root, name)
    return {"train": root}


def _refuse_parts_as_classes(spec: ImageFolder, root: str, folders: list[str]) -> None:
    parts = [name for name in folders if name_part(name)]
    if parts == folders and "train" not in map(name_part, parts):
        refuse(spec, f"it has {' and '.join(folders)}, but no train with classes in it", "Add root/train/<class>.")
    if misspelt := _find_misspelt_parts(root, folders):
        refuse(
            spec,
            f"it has {' and '.join(folders)}, which look like parts of the data, and {misspelt[0]} is none",
            "Name the parts train, val and test.",
        )
    # A single class may be called "train" or "test", but not two.
    if len(set(map(name_part, parts))) < 2:
        # `seg_train` and `seg_test` alone are parts; among other names, `train_station` and `test_tube` are classes.
        mentioned = list(map(_mentioned_parts, folders))
        parts = folders if all(mentioned) and len(set().union(*mentioned)) > 1 else []
    if parts:
        refuse(
            spec,
            f"its folders {' and '.join(map(repr, parts))} look like parts of the data, not like classes",
            f"{_LAYOUT}, rename the classes that have such names, or list the images in a manifest.",
        )


def _find_misspelt_parts(root: str, folders: list[str]) -> list[str]:
    """Return the folders whose names are misspelt parts, such as `trian`; empty unless all folders can be parts."""
    misspelt = [name for name in folders if not name_part(name)]
    can_be_parts = all(_resembles_part(name) and list_subfolders(os.path.join(root, name)) for name in folders)
    return misspelt if can_be_parts else []


def _resembles_part(name: str) -> bool:
    # Swapped letters are the most frequent error, and weigh much in a ratio of short words.
    word = name.strip().lower()
    return any(sorted(word) == sorted(part) for part in _WORDS) or bool(get_close_matches(word, _WORDS, 1, 0.75))


def _mentioned_parts(name: str) -> set[str]:
    return {_WORDS[word] for word in re.findall("[a-z]+", name.lower()) if word in _WORDS}


def _refuse_parts_in_class(spec: ImageFolder, root: str, name: str) -> None:
    inside = [folder for folder in list_subfolders(os.path.join(root, name)) if name_part(folder)]
    if len({name_part(folder) for folder in inside}) > 1:
        refuse(
            spec,
            f"class {name!r} is itself divided into {' and '.join(inside)}, which would be mixed",
            f"{_LAYOUT}, or list the images in a manifest with a column split.",
        )


def _refuse_loose_images(spec: ImageFolder, folder: str) -> None:
    if loose := list_loose_images(folder):
        lie = f"{len(loose)} images lie" if len(loose) > 1 else "an image lies"
        refuse(
            spec,
            f"{lie} in {printable(folder)} itself, outside the class folders ({printable(os.path.basename(loose[0]))})",
            "Move each image into the folder of its class, or remove it.",
        )
