"""Find broken image files before a sweep starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from training.data.files.cache import cached, key_of_files
from training.data.files.decode import UnreadableImage, read_image, read_side
from training.data.files.images import ImageData
from training.errors import UserError, printable
from training.process.resources import map_in_threads

DECODED_IMAGES = 20_000  # about half a minute on two cores; in larger sets only the headers are read
_REDUCED_SIDE = 32  # any size reveals a truncated JPEG, and small ones decode faster

logger = logging.getLogger(__name__)


def check_images(data: ImageData) -> None:
    """Read every image of all parts: up to 20,000 images completely, otherwise only the headers. The result is cached."""
    bad = find_unreadable(data.paths)
    if not bad:
        return
    first, reason = next(iter(bad.items()))
    more = f" {len(bad) - 1} more cannot be read either." if len(bad) > 1 else ""
    raise UserError(
        f"{printable(first)}: this image cannot be read ({reason}).{more} "
        "Repair or remove the broken files, or set data.skip_unreadable=true to continue without them."
    )


def find_unreadable(paths: Sequence[str], *, whole: bool = False) -> dict[str, str]:
    """Return the files that cannot be read, in the order of `paths`, each with the reason.

    With more than 20,000 files only the headers are read, unless `whole` is set.
    """
    decode = whole or len(paths) <= DECODED_IMAGES
    # Read those few again: a missing permission can be granted without a change of the file.
    bad = cached("unreadable", key_of_files(paths, 4, decode), lambda: _scan(paths, decode))
    return {path: reason for path in bad if (reason := find_fault(path, decode))}


def _scan(paths: Sequence[str], decode: bool) -> list[str]:
    logger.info("Checking %d images%s.", len(paths), "" if decode else " (their headers only)")
    faults = map_in_threads(lambda path: find_fault(path, decode), paths)
    return [path for path, fault in zip(paths, faults, strict=True) if fault]


def find_fault(path: str, decode: bool) -> str | None:
    """Return why an image cannot be read, or only its header unless `decode` is set; None if it can."""
    try:
        if decode:
            read_image(path, _REDUCED_SIDE)
        else:
            read_side(path)
    except UnreadableImage as error:
        return error.reason
    return None
