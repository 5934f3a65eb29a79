"""Find broken image files before a sweep starts, rather than hours into it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from training.data.files.answers import key_of_files, remember
from training.data.files.decode import UnreadableImage, printable, read_image, read_side
from training.data.files.images import ImageData, ImageFiles
from training.errors import UserError
from training.process.resources import count_cpus

DECODED_IMAGES = 20_000  # about half a minute on two cores; of larger sets only the headers are read
_REDUCED_SIDE = 32  # a truncated JPEG shows at any size, and small ones decode faster

logger = logging.getLogger(__name__)


def check_images(data: ImageData) -> None:
    """Read every image of all parts: whole up to 20,000 images, beyond that their headers. The verdict is cached.

    Raises:
        UserError: naming the first unreadable file, and how many more there are.
    """
    parts = (part.images for part in (data.train, data.val, data.test))
    bad = find_unreadable([path for images in parts if isinstance(images, ImageFiles) for path in images.paths])
    if not bad:
        return
    first, reason = next(iter(bad.items()))
    more = f" So do {len(bad) - 1} more files." if len(bad) > 1 else ""
    raise UserError(
        f"{printable(first)}: this image cannot be read ({reason}).{more} "
        "Repair or remove what is broken, or set data.skip_unreadable=true to go on without it."
    )


def find_unreadable(paths: Sequence[str], *, whole: bool = False) -> dict[str, str]:
    """Return the files among `paths` that cannot be read, in that order, each with the reason.

    Of more than 20,000 only the headers are read, unless they are asked for as a `whole`.
    """
    decode = whole or len(paths) <= DECODED_IMAGES
    found = remember("unreadable", key_of_files(paths, 1, decode), lambda: _scan(paths, decode))
    # Those few are read again: what was a lack of permission may be mended without a change of the file.
    return {path: reason for path in found if (reason := _judge(path, decode))}


def _scan(paths: Sequence[str], decode: bool) -> list[str]:
    logger.info("Checking %d images%s.", len(paths), "" if decode else " (their headers only)")
    with ThreadPoolExecutor(count_cpus()) as pool:
        reasons = pool.map(lambda path: _judge(path, decode), paths)
        return [path for path, reason in zip(paths, reasons, strict=True) if reason]


def _judge(path: str, decode: bool) -> str | None:
    """Return why a file cannot be read, None when it can."""
    try:
        if decode:
            read_image(path, reduce_to=_REDUCED_SIDE)
        else:
            read_side(path)
    except UnreadableImage as error:
        return error.reason
    return None
