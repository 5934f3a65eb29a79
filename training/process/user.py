"""A name and a home for a user whom the system does not know, as in a container that runs under any number."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path


def name_user() -> str:
    """Return the name of the user; without one, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without an entry; OSError since Python 3.13
        return str(os.getuid())


def complete_user() -> None:
    """Set LOGNAME and HOME where neither they nor the system's list of users give a name and a home.

    Ray, MLflow, torch and platformdirs ask for them; they fail, or make a folder named `~`. The processes that this one
    starts inherit both.
    """
    if (name := name_user()) == str(os.getuid()):
        os.environ["LOGNAME"] = name
    if not _has_home():
        os.environ["HOME"] = str(_make_home(name))


def _has_home() -> bool:
    """Return whether the user has a home. That of a container is often `/`, or names a folder that nobody can make.

    One that exists and cannot be written to is one: libraries find their caches there.
    """
    try:
        home = Path.home()
    except RuntimeError:
        return False
    existing = next((folder for folder in (home, *home.parents) if folder.is_dir()), Path("/"))
    return os.access(existing, os.W_OK) or (existing == home and home != Path("/"))


def _make_home(name: str) -> Path:
    home = Path(tempfile.gettempdir(), f"technique-search-{name}")
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        if home.stat(follow_symlinks=False).st_uid == os.getuid() and not home.is_symlink():
            return home
    except OSError:  # it is a file of another user, for example
        pass
    return Path(tempfile.mkdtemp(prefix="technique-search-"))
