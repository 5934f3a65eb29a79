"""Cache slow results in the user's cache folder, under a key of what they depend on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar, cast

from filelock import FileLock
from platformdirs import user_cache_dir

from training.process.text_files import keep_json, recall_json

Result = TypeVar("Result")


def cached(subfolder: str, key: str, compute: Callable[[], Result]) -> Result:
    """Return the cached result for this key, else compute and cache it.

    Processes that need it at the same time compute once. The result is stored as JSON, so a cached tuple comes back as
    a list. If the cache folder cannot be written to, it is computed each time. `key` is a digest of everything that the
    result depends on, see `key_of_files`.
    """
    file = Path(user_cache_dir("technique-search")) / subfolder / f"{key}.json"
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(file.with_suffix(".lock")))
        except (OSError, NotImplementedError):  # a read-only home, or a file system without locks
            return compute()
        entry = recall_json(file, dict[str, object])
        if entry is None or "value" not in entry:
            entry = {"value": compute()}
            with suppress(OSError):  # on a full disk, the next process computes again
                keep_json(file, entry)
    return cast(Result, entry["value"])


def key_of_files(paths: Sequence[str], *settings: object, names: Sequence[str] | None = None) -> str:
    """Return a digest of paths, sizes and modification times: it changes with a file, and no file is read.

    With `names` these stand in the digest in place of the paths.
    """
    digest = hashlib.sha256(repr(settings).encode())
    for path, name in zip(paths, names or paths, strict=True):
        try:
            status = os.stat(path)
            facts = (status.st_size, status.st_mtime_ns)
        except OSError:
            facts = (-1, -1)
        digest.update(b"%s\0%d %d\n" % (os.fsencode(name), *facts))
    return digest.hexdigest()[:32]
