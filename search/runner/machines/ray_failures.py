"""Ray's messages about failures, in one line each."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from search.runner.machines.drain import is_on_draining
from training.errors import LostDevice

if TYPE_CHECKING:
    from ray.tune.experiment import Trial as RayTrial

    from ledger.events import LossCause

# Parts of the messages about a worker that was lost with its node, or ended by the SIGTERM of a drain or an eviction.
PREEMPTED = ("its node has died", "temporarily unavailable", "received a SIGTERM", "receives a SIGTERM", "preempted")
# The message about a worker that died, and its id, which is missing while Ray knows nothing of the death.
DIED = re.compile(r"The actor died(?:.*\bactor_id: (\w+))?", re.DOTALL)
# Parts of the messages about a worker that needed more memory than there was.
MEMORY = ("low on memory", "OutOfMemory")
LOST = f"{LostDevice.__name__}: "  # precedes the reason in a traceback
# Errors of a folder that are the same at the next try: of another user, read only, a file in its place, a full disk.
PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENOSPC, errno.EDQUOT)
TELLING = ("memory", "died", "killed", "unavailable")


def describe_failure(error: Exception) -> str:
    """Return the first line of an error that Ray raised, without its full stop."""
    from ray.exceptions import OutOfMemoryError

    if isinstance(error, OutOfMemoryError):
        return "the memory of the machine is too small"
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]


def describe_bad_place(error: Exception) -> str | None:
    """Return a sentence if Ray cannot use the folder of its sessions, so that another try would fail too."""
    name = next((name for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "RAY_TMPDIR")
    place = os.environ.get(name) or "/tmp"
    if "AF_UNIX path length" in str(error):
        return (
            f"{name}={place}: this path is too long for Ray, whose sockets below it would have more than the 107 bytes "
            "that Linux allows. Set RAY_TMPDIR to a folder with a short path, such as /tmp."
        )
    if not isinstance(error, OSError) or error.errno not in PLACE:
        return None
    where = str(error.filename or place)
    way_out = "RAY_TMPDIR to a folder with a short path" if where.startswith(place) else "HOME to a folder"
    return f"Ray cannot write to {where} ({error.strerror}). Set {way_out} that you can write to."


def describe_death(trial: RayTrial) -> tuple[str, LossCause | Literal["memory"]]:
    """Return in one line why a trial's worker died, and the kind of cause."""
    # Ray's `get_error` reads a copy of the file, which Ray makes later.
    file = Path(trial.error_file or "")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line.split(LOST, 1)[1] for line in lines if LOST in line]
    telling += [line for line in lines if any(word in line.lower() for word in TELLING)]
    # The first line is the time, and the last one the exception.
    reason = (telling or list(filter(None, reversed(lines))) or ["the worker died"])[0][:300]
    if any(part in reason for part in MEMORY):
        return reason, "memory"
    # A worker leaves a draining node by a signal, of which Ray does not always tell.
    died = DIED.search(text)
    is_preempted = any(part in text for part in PREEMPTED) or (died is not None and is_on_draining(died[1]))
    return reason, "preemption" if is_preempted else "worker"
