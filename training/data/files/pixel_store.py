"""Pixels and features, stored once per machine: all processes map the same file, so memory holds one copy (mmap(2)).

A file gets its name only when it is complete. A second process waits for the first, then maps its file.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
from filelock import FileLock
from platformdirs import user_cache_dir

Kind = Literal["pixels", "features"]  # each has a folder and a limit of its own
LIMIT_VARIABLES: dict[Kind, str] = {"pixels": "TECHNIQUE_SEARCH_CACHE_MB", "features": "TECHNIQUE_SEARCH_FEATURES_MB"}
_USUAL_LIMIT_MB = 4096
_ABANDONED_SECONDS = 86_400

logger = logging.getLogger(__name__)


def cache_limit(kind: Kind = "pixels") -> int:
    """Return how many bytes the decoded pixels, or the features, of all data sets may take in the user's cache folder."""
    asked = os.environ.get(LIMIT_VARIABLES[kind], "")
    return (int(asked) if asked.isdecimal() else _USUAL_LIMIT_MB) * 2**20


def shared_array(
    key: str, shape: tuple[int, ...], fill: Callable[[np.ndarray], None], kind: Kind = "pixels"
) -> np.ndarray:
    """Return the uint8 array of this key, read-only, mapped from a file; `fill` writes the values if there is none.

    If no file can be stored (read-only home, full disk, low limit), each process gets its own array. `key` is a digest
    of everything that the values depend on.
    """
    size = prod(shape)
    folder = Path(user_cache_dir("technique-search")) / kind
    file = folder / f"{key}.npy"
    limit = cache_limit(kind)
    reason: object = f"above the limit of {limit >> 20} MB; {LIMIT_VARIABLES[kind]} sets it"
    if size <= limit:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(file.with_suffix(".lock")):
                stored = _open(file, shape)
                if stored is None:
                    _make_room(folder, size, limit)
                    stored = _write(file, shape, fill)
                with suppress(FileNotFoundError):  # another process made room, and has removed it meanwhile
                    os.utime(file)  # the least recently used file is removed first
                return stored
        except (OSError, NotImplementedError) as error:
            reason = error
    if size > 64 * 2**20:
        logger.warning("%d MB of %s are not shared between processes (%s).", size >> 20, kind, reason)
    array: np.ndarray = np.empty(shape, np.uint8)
    fill(array)
    return array


def _open(file: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        array = np.load(file, mmap_mode="r")
    except (OSError, ValueError):  # the file is missing or truncated
        return None
    return array if array.shape == shape and array.dtype == np.uint8 else None


def _write(file: Path, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """Write under another name, then rename, so that a crash leaves no incomplete file under the name."""
    unfinished = file.with_suffix(".tmp")
    try:
        array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=shape)
        _reserve(unfinished)
        fill(array)
        array.flush()
        del array
        # Open it before the rename: afterwards another process may remove it to free space.
        mapped = np.load(unfinished, mmap_mode="r")
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return mapped


def _reserve(file: Path) -> None:
    """Reserve the disk space now: a write to a mapped file on a full disk kills the process instead of raising."""
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)


def _make_room(folder: Path, size: int, limit: int) -> None:
    """Remove the least recently used files. Processes that have mapped one can use it until they end."""
    for changed, _, left in _list(folder, "*.tmp"):
        if time.time() - changed > _ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    files = _list(folder, "*.npy")
    total = size + sum(taken for _, taken, _ in files)
    for _, taken, file in files:
        if total <= limit:
            break
        file.unlink(missing_ok=True)
        total -= taken


def _list(folder: Path, pattern: str) -> list[tuple[float, int, Path]]:
    """Return the time of the last use and the bytes of each file, the oldest first."""
    found = []
    for file in folder.glob(pattern):
        with suppress(FileNotFoundError):  # another process has removed it meanwhile
            found.append((file.stat().st_mtime, file.stat().st_size, file))
    return sorted(found)
