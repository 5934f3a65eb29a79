"""List the image files of each class in a folder, sorted, so that the order is the same on every machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from training.data.files.images import name_part
from training.data.files.system_files import is_system_name
from training.errors import UserError, printable

Listing = dict[str, list[str]]  # the paths of each class, both sorted
EXTENSIONS = (
    *(".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"),  # the extensions of torchvision
    *(".gif", ".jfif", ".jp2", ".j2k", ".avif"),
    # With pillow-heif; without it they are refused, because no one expects them to be missing.
    *(".heic", ".heif", ".hif"),
)
_OTHER_DATA = (
    *(".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip", ".7z", ".rar"),
    *(".parquet", ".arrow", ".csv", ".tsv", ".h5", ".hdf5", ".npz", ".lmdb", ".tfrecord", ".tfrecords"),
)
LONGEST_NAME = 255  # letters in the name of a class; the same limit as in the names of folders


def find_bad_name(classes: Iterable[str]) -> tuple[str, str] | None:
    """Return what is wrong with a class's name that no table and no file can show, and the way out; None if all are good."""
    for name in classes:
        if len(name) > LONGEST_NAME:
            return f"the name of the class {name[:20]!r}… has {len(name)} letters", f"Use {LONGEST_NAME} at most."
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            return f"the name of the class {name!a} is not UTF-8", "Rename it."
    return None


def list_subfolders(folder: str) -> list[str]:
    """Return the names of the folders in a folder, sorted; hidden ones and those of a system are left out."""
    return [entry.name for entry in _scan(folder) if _holds(entry.is_dir)]


def find_files(folder: str) -> tuple[list[str], list[str]]:
    """Return the images below a folder, at any depth, and the other files, both sorted.

    Links are followed, and hidden files and those of a system are skipped. A file without an extension is an image if its
    content is one. A path that is not a regular file, such as a named pipe, is never an image. A broken link counts as an
    image, so that reading it reports the path.
    """
    return _tell_apart(_walk(folder, set()))


def list_loose_images(folder: str) -> list[str]:
    """Return the images that lie in a folder itself, sorted."""
    return _tell_apart(entry for entry in _scan(folder) if not _holds(entry.is_dir))[0]


def is_no_label(label: object) -> bool:
    """Return whether a label stands for none, as in the test parts of public data sets: nothing, NaN or -1."""
    return label is None or label != label or str(label).strip() in ("", "-1", "-1.0")


def has_class_folders(folder: str) -> bool:
    """Return whether at least two folders in a folder have images, or two in one of the parts that it has."""
    with_images = [name for name in list_subfolders(folder) if find_files(os.path.join(folder, name))[0]]
    if with_images and all(map(name_part, with_images)):
        return any(has_class_folders(os.path.join(folder, name)) for name in with_images)
    return len(with_images) > 1


def list_other_data(folder: str) -> list[str]:
    """Return the names of the files in a folder itself that are archives or tables, sorted."""
    return [entry.name for entry in _scan(folder) if entry.name.lower().endswith(_OTHER_DATA) and _holds(entry.is_file)]


def is_hidden(name: str) -> bool:
    """Return whether a file or a folder is hidden, or one that a system has made."""
    return name.startswith(".") or is_system_name(name)


def is_image_name(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)


def _tell_apart(entries: Iterable[os.DirEntry[str]]) -> tuple[list[str], list[str]]:
    images, unnamed, others = list[str](), list[str](), list[str]()
    for entry in entries:
        if not _holds(entry.is_file) and os.path.exists(entry.path):
            others.append(entry.path)
        elif is_image_name(entry.name):
            images.append(entry.path)
        else:
            (others if os.path.splitext(entry.name)[1] else unnamed).append(entry.path)
    if unnamed:
        from training.data.files.cache import cached, key_of_files
        from training.data.files.check import find_fault

        key = key_of_files(unnamed, 2)
        known = set(cached("unnamed", key, lambda: [path for path in unnamed if not find_fault(path, decode=False)]))
        images += [path for path in unnamed if path in known]
        others += [path for path in unnamed if path not in known]
    return sorted(images), sorted(others)


def _walk(folder: str, seen: set[str]) -> Iterator[os.DirEntry[str]]:
    seen.add(os.path.realpath(folder))
    for entry in _scan(folder):
        if not _holds(entry.is_dir):
            yield entry
        # A link to a parent folder would recurse for ever.
        elif os.path.realpath(entry.path) not in seen:
            yield from _walk(entry.path, seen)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not is_hidden(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{printable(folder)}: this folder cannot be read ({reason}). Check its permissions.") from None


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # a link that points to itself
        return False
