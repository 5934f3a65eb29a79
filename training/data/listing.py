"""Which image files a folder holds, by class: a sorted listing, the same on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

from training.data.decode import printable
from training.data.specs import ImageFolder
from training.errors import UserError

Listing = dict[str, list[str]]  # class to paths, both sorted
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's

_PARTS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


def find_parts(spec: ImageFolder, root: str) -> dict[str, str]:
    """Return the folder of each part that has one; the root itself is `train` where it holds the classes.

    Raises:
        UserError: there is no such folder, or nothing in it.
    """
    if not os.path.isdir(root):
        where = "" if spec.root == root else f" (looked in {printable(root)})"
        what = "a file, not a folder" if os.path.exists(root) else f"no such folder{where}"
        refuse(spec, what, "Give the folder that holds one subfolder per class.")
    folders = _subfolders(spec, root)
    if "train" in folders and _subfolders(spec, os.path.join(root, "train")):
        found = {part: next((name for name in names if name in folders), None) for part, names in _PARTS.items()}
        return {part: os.path.join(root, name) for part, name in found.items() if name}
    if not folders:
        what = "images lie in it, but no subfolders" if any(find_images(root)) else "the folder is empty"
        refuse(
            spec, what, "It must hold one subfolder per class, named after the class, with the images of that class."
        )
    # A class may well be called "test", but not every class.
    if set(folders) <= {name for names in _PARTS.values() for name in names} - {"train"}:
        refuse(spec, f"it has {' and '.join(folders)}, but no train with classes in it", "Add root/train/<class>.")
    return {"train": root}


def list_classes(spec: ImageFolder, folder: str) -> Listing:
    """Return the images below each class's folder, at any depth; links are followed, hidden files are not."""
    return {name: sorted(find_images(os.path.join(folder, name))) for name in _subfolders(spec, folder)}


def refuse(spec: ImageFolder, what: str, way_out: str) -> NoReturn:
    raise UserError(f"data.root={printable(spec.root)}: {what}. {way_out}")


def _subfolders(spec: ImageFolder, folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not _is_hidden(entry.name))
    except OSError as error:
        return refuse(spec, f"{printable(folder)} cannot be read ({error.strerror})", "Check its permissions.")


def find_images(folder: str) -> Iterator[str]:
    """The image files below a folder, at any depth; links are followed, hidden files are not."""
    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(place))
        # A link to a folder above would go round for ever.
        folders[:] = [
            name for name in folders if not _is_hidden(name) and os.path.realpath(os.path.join(place, name)) not in seen
        ]
        for name in files:
            if name.lower().endswith(EXTENSIONS) and not _is_hidden(name):
                yield os.path.join(place, name)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
