"""Find broken image files before a sweep starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict

import numpy as np

from training.data.files.cache import cached, key_of_files
from training.data.files.decode import UnreadableImage, read_image, read_image_and_range, read_side
from training.data.files.grey_levels import Range
from training.data.files.images import ImageData
from training.errors import UserError, printable
from training.process.resources import count_cpus

DECODED_IMAGES = 20_000  # about half a minute on two cores; in larger sets only the headers are read
_REDUCED_SIDE = 32  # any size reveals a truncated JPEG, and small ones decode faster


class OddPixels(TypedDict):
    """What decoding shows that a header does not, for readable files."""

    one_colour: list[str]  # files whose pixels are all equal
    guessed_ranges: dict[str, Range]  # files of deep grey levels that do not name black and white, with those used


class _Scan(TypedDict):
    unreadable: list[str]
    odd: OddPixels


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
    bad = _scan_once(paths, decode)["unreadable"]
    return {path: seen for path in bad if isinstance(seen := _look_at(path, decode), str)}


def find_odd_pixels(paths: Sequence[str]) -> OddPixels:
    """Return what decoding all files shows, from the check of them, so that no file is decoded twice."""
    return _scan_once(paths, True)["odd"]


def _scan_once(paths: Sequence[str], decode: bool) -> _Scan:
    return cached("unreadable", key_of_files(paths, 3, decode), lambda: _scan(paths, decode))


def _scan(paths: Sequence[str], decode: bool) -> _Scan:
    logger.info("Checking %d images%s.", len(paths), "" if decode else " (their headers only)")
    unreadable: list[str] = []
    odd = OddPixels(one_colour=[], guessed_ranges={})
    with ThreadPoolExecutor(count_cpus()) as pool:
        for path, seen in zip(paths, pool.map(lambda path: _look_at(path, decode), paths), strict=True):
            if isinstance(seen, str):
                unreadable.append(path)
                continue
            one_colour, levels = seen
            if one_colour:
                odd["one_colour"].append(path)
            if levels:
                odd["guessed_ranges"][path] = levels
    return {"unreadable": unreadable, "odd": odd}


def _look_at(path: str, decode: bool) -> tuple[bool, Range | None] | str:
    """Return whether an image has one colour throughout and the range that was guessed, or why it cannot be read."""
    try:
        if not decode:
            read_side(path)
            return False, None
        pixels, levels = read_image_and_range(path, _REDUCED_SIDE)
        # A fine pattern can vanish in a reduced size.
        return has_one_colour(pixels) and has_one_colour(read_image(path)), levels
    except UnreadableImage as error:
        return error.reason


def has_one_colour(pixels: np.ndarray) -> bool:
    """Return whether all pixels (height, width, 3) are equal."""
    return bool((pixels == pixels[:1, :1]).all())
