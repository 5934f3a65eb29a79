"""Answers that take long to find, kept in the user's cache folder under a key of what they were found from."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_dir


def remember(kind: str, key: str, compute: Callable[[], Any]) -> Any:
    """Return what was computed for this key before, else compute it once, also when several processes ask at a time.

    The value is whatever JSON can hold. Where the cache folder cannot be written, it is computed each time.
    """
    file = Path(user_cache_dir("technique-search")) / kind / f"{key}.json"
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(file.with_suffix(".lock")))
        except (OSError, NotImplementedError):  # a read-only home, or a file system without locks
            return compute()
        found = _read(file)
        if found is None:
            found = {"value": compute()}
            _write(file, found)
    return found["value"]


def key_of_files(paths: Iterable[str], *settings: object) -> str:
    """Digest of paths, sizes and times of change: it changes when a file does, and costs no reading."""
    digest = hashlib.sha256(repr(settings).encode())
    for path in paths:
        try:
            status = os.stat(path)
            facts = (status.st_size, status.st_mtime_ns)
        except OSError:
            facts = (-1, -1)
        digest.update(b"%s\0%d %d\n" % (os.fsencode(path), *facts))
    return digest.hexdigest()[:32]


def _read(file: Path) -> Any:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or damaged: compute again
        return None
    return found if isinstance(found, dict) and "value" in found else None


def _write(file: Path, value: Any) -> None:
    try:
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    except OSError:
        return
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            json.dump(value, stream)
        os.replace(temporary, file)
    except OSError:  # a full disk costs the next process some time, and nothing else
        Path(temporary).unlink(missing_ok=True)
