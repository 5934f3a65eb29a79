"""A Ray of this machine that stays ready between sweeps: `sweep up` starts it, and `sweep down` ends it.

A process of its own keeps Ray and the fork server (`keeper.py`). One sweep at a time uses them, and only if its workers
would be the same as those of a Ray of its own: same folder, same environment, same code.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_dir
from pydantic import BaseModel

from search.runner.worker import project_root

# Variables of the terminal, and variables that libraries set on import or that only Ray's start reads.
_OTHER_PREFIXES = ("RAY_", "TUNE_", "TERM", "COLOR", "SSH_", "TMUX", "XDG_SESSION", "MAKE", "HIST")
_OTHER = {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "STY", "WINDOW", "WINDOWID", "DISPLAY", "PS1", "LS_COLORS"}
_OTHER |= {"PYTHONBREAKPOINT", "LD_LIBRARY_PATH", "TORCHINDUCTOR_CACHE_DIR", "DBUS_SESSION_BUS_ADDRESS"}

_held: list[FileLock] = []  # of the Ray that this process uses, until it ends


class Surroundings(BaseModel, frozen=True):
    """What the workers of a sweep depend on, besides its recipes."""

    folder: str
    environment: str
    code: str

    @classmethod
    def here(cls) -> Surroundings:
        """Return those of this process."""
        variables = sorted(
            item for item in os.environ.items() if item[0] not in _OTHER and not item[0].startswith(_OTHER_PREFIXES)
        )
        sources = [path for part in ("training", "search/runner") for path in Path(project_root(), part).rglob("*.py")]
        files = [(str(path), path.stat().st_mtime_ns) for path in sorted(sources)]
        packages = [(path, Path(path).stat().st_mtime_ns) for path in sys.path if Path(path).name == "site-packages"]
        code = _digest([sys.executable, files, packages])
        return cls(folder=os.getcwd(), environment=_digest(variables), code=code)

    def name_difference(self, other: Surroundings) -> str:
        """Return what differs, for a message; "" if nothing does."""
        if self.folder != other.folder:
            return f"it was started in {other.folder}"
        if self.environment != other.environment:
            return "the environment's variables are not those of its start"
        return "" if self.code == other.code else "the code or its libraries have changed since its start"


class Warm(BaseModel, frozen=True):
    """A Ray that is up. Other versions of the project read it too, so new fields need defaults."""

    pid: int  # of its keeper
    address: str
    python: str  # the command that runs a script by the fork server; "" without one
    settings: dict[str, str]  # variables that a driver needs before it imports Ray
    surroundings: Surroundings


def state_folder() -> Path:
    """Return the user's folder with the state and the locks."""
    return Path(user_cache_dir("technique-search")) / "ray"


def keeper_lock() -> FileLock:
    """Return the lock that the keeper has as long as it lives."""
    return FileLock(state_folder() / "keeper.lock")


def use_lock() -> FileLock:
    """Return the lock of the sweep that uses the Ray."""
    return FileLock(state_folder() / "use.lock")


def write_state(warm: Warm) -> None:
    """Tell other processes that this Ray is ready."""
    partial = state_folder() / f"ready-{warm.pid}"
    partial.write_text(warm.model_dump_json())
    partial.replace(state_folder() / "ready.json")


def remove_state() -> None:
    """Offer the Ray to no other process."""
    (state_folder() / "ready.json").unlink(missing_ok=True)


def find_warm() -> Warm | None:
    """Return the Ray that is up, whether a sweep uses it or not."""
    try:
        text = (state_folder() / "ready.json").read_text()
    except OSError:  # none is up, or the cache cannot be read
        return None
    return Warm.model_validate_json(text) if is_held(keeper_lock()) else None  # else its keeper was killed


def is_held(lock: FileLock) -> bool:
    """Return whether another process has a lock."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def claim_warm() -> tuple[Warm | None, str]:
    """Return the Ray for a sweep of this process, which then has it until it ends; None and a reason if it cannot.

    The reason is "" if no Ray is up.
    """
    if _held or find_warm() is None:  # Ray serves the second sweep of a process as the first
        return None, ""
    lock = use_lock()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None, "another sweep uses it"
    warm = find_warm()  # the keeper ends only with this lock
    reason = Surroundings.here().name_difference(warm.surroundings) if warm else ""
    if warm is None or reason:
        lock.release()
        return None, reason
    _held.append(lock)
    return warm, ""


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
