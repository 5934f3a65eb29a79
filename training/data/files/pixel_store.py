"""Decoded pixels once per machine: arrays in files that every process maps, so that the system keeps one copy (mmap(2)).

A file appears under its name only when it is whole; whoever comes second waits for the first, and reads what it wrote.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
from filelock import FileLock
from platformdirs import user_cache_dir

LIMIT_VARIABLE = "TECHNIQUE_SEARCH_CACHE_MB"
_USUAL_LIMIT_MB = 4096
_ABANDONED_SECONDS = 86_400

logger = logging.getLogger(__name__)


def cache_limit() -> int:
    """Bytes that decoded pixels may take in the user's cache folder, all data sets together."""
    asked = os.environ.get(LIMIT_VARIABLE, "")
    return (int(asked) if asked.isdecimal() else _USUAL_LIMIT_MB) * 2**20


def shared_array(
    key: str, shape: tuple[int, ...], fill: Callable[[np.ndarray], None], dtype: type = np.uint8
) -> np.ndarray:
    """Return the array of this key, read-only and mapped from a file; `fill` writes it where there is none yet.

    Where no file can be kept (a read-only home, a full disk, a limit too low), each process has an array of its own.
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    folder = Path(user_cache_dir("technique-search")) / "pixels"
    file = folder / f"{key}.npy"
    reason: object = f"above the limit of {cache_limit() >> 20} MB; {LIMIT_VARIABLE} sets it"
    if size <= cache_limit():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(file.with_suffix(".lock")):
                found = _open(file, shape, dtype)
                if found is None:
                    _make_room(folder, size)
                    found = _write(file, shape, dtype, fill)
                os.utime(file)  # the least recently used goes first
                return found
        except (OSError, NotImplementedError) as error:
            reason = error
    if size > 64 * 2**20:
        logger.warning("%d MB of pixels are not shared between processes (%s).", size >> 20, reason)
    array: np.ndarray = np.empty(shape, dtype)
    fill(array)
    return array


def _open(file: Path, shape: tuple[int, ...], dtype: type) -> np.ndarray | None:
    try:
        found = np.load(file, mmap_mode="r")
    except (OSError, ValueError):  # not there, or cut short
        return None
    return found if found.shape == shape and found.dtype == dtype else None


def _write(file: Path, shape: tuple[int, ...], dtype: type, fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """Write beside the name, then rename: a crash leaves a file that nobody takes for whole."""
    unfinished = file.with_suffix(".tmp")
    try:
        array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.dtype(dtype), shape=shape)
        _reserve(unfinished)
        fill(array)
        array.flush()
        del array
        # Opened before it has its name: from then on, another process may remove it to make room.
        found = np.load(unfinished, mmap_mode="r")
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return found


def _reserve(file: Path) -> None:
    """Take the disk space now: writing to a mapped file on a full disk is a signal that kills, not an error."""
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)


def _make_room(folder: Path, size: int) -> None:
    """Remove what was used longest ago. Processes that have it mapped keep it until they end."""
    for left in folder.glob("*.tmp"):
        if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
            left.unlink(missing_ok=True)
    files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in folder.glob("*.npy"))
    total = size + sum(taken for _, taken, _ in files)
    for _, taken, file in files:
        if total <= cache_limit():
            break
        file.unlink(missing_ok=True)
        total -= taken
