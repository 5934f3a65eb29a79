"""Images that are away for a moment, such as those on a network disk: they are waited for."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import TypeVar

from training.contract.specs import Data
from training.errors import DataAway, printable

PLACES = Data.places
PAUSES_SECONDS = (1, 2, 4, 8, 15, 30)  # a minute in all
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
_PASSING |= {errno.ENOTCONN, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETUNREACH}

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


def is_away(path: str, error: Exception) -> bool:
    """Return whether a file is away with its disk: an error that may pass, or the folder of the file is missing too."""
    if isinstance(error, FileNotFoundError):
        return not os.path.isdir(os.path.dirname(os.path.abspath(path)))
    return isinstance(error, OSError) and error.errno in _PASSING


def wait_while_away(read: Callable[[], Result]) -> Result:
    """Return what `read` returns; while it raises `DataAway`, try again for a minute.

    Raises:
        DataAway: it still does.
    """
    for seconds in PAUSES_SECONDS:
        try:
            return read()
        except DataAway as away:
            logger.warning("%s Trying again in %d s.", away, seconds)
            time.sleep(seconds)
    return read()


def find_missing(spec: Data) -> tuple[str, str] | None:
    """Return the field of the data whose folder or file is not there, and that place; None if all are there."""
    places = [(name, getattr(spec, name, None)) for name in PLACES if spec.reads_files]
    files = ((name, place) for name, place in places if place and "://" not in place)
    return next(((name, place) for name, place in files if not os.path.exists(os.path.expanduser(place))), None)


def find_places(spec: Data) -> None:
    """Check that the folder or file of the data is there.

    Raises:
        DataAway: it is not.
    """
    if missing := find_missing(spec):
        raise DataAway(f"{printable(missing[1])}: the images are no longer there.")
