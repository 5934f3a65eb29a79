"""The servers, clusters and stores that this user has named.

A ledger may come from another person. What it names gets a password, a token or a key of this user only if the user has
named it too: as an option, in a variable, or for an earlier sweep. The list of these is a file outside all ledgers.
"""

from __future__ import annotations

import logging
import os
import shlex
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from platformdirs import user_state_path

from ledger.formatting import mask_secrets
from training.errors import UserError

# The variable that names a place of each option, and what its owner would get.
VARIABLES = {
    "--tracking-uri": ("MLFLOW_TRACKING_URI", "MLflow password or token"),
    "--address": ("RAY_ADDRESS", "Ray token"),
    "--copy-to": ("SWEEP_COPY_TO", "keys of the store"),
}
DEBUG = "debug"  # the address of this process, without Ray
OWN = ("auto", "local", DEBUG)
SQLITE, FILE = "sqlite:///", "file:///"
# All but files of this machine, also what leads elsewhere only in the end, as `models:/m-1` and `mlflow-artifacts:/` do.
REMOTE = "{0} LIKE '%:%' AND {0} NOT LIKE '/%' AND {0} NOT LIKE 'file:///%'"
PLACES = {"runs": "artifact_uri", "experiments": "artifact_location", "logged_models": "artifact_location"}
# MLflow has one trigger of its own; any other could change the place of a run after it was looked at.
CHANGING = "SELECT 1 FROM sqlite_master WHERE type = 'view' OR type = 'trigger' AND tbl_name != 'secrets'"

_named: set[str] = set()  # by this process, also where the file cannot be written


def list_file() -> Path:
    """Return the file with the places, one a line; passwords are masked."""
    return user_state_path("technique-search") / "trusted"


def trust(*places: str | None) -> None:
    """Take places that the user has named as trusted by this process."""
    _named.update(mask_secrets(place) for place in places if place and not _is_harmless(place))


def remember(*places: str | None) -> None:
    """Trust places that the user has named, and that answered as they should, in later commands too."""
    trust(*places)
    new = {mask_secrets(place) for place in places if place and not _is_harmless(place)} - _read()
    if not new:
        return
    file = list_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as opened:
            opened.writelines(f"{place}\n" for place in sorted(new))
    except OSError as error:  # then a later command asks for the name again
        logging.getLogger("search").debug("%s: %s", file, error)


def is_trusted(option: str, place: str | None) -> bool:
    """Return whether a place from a ledger may get what this user keeps secret."""
    if not place or _is_harmless(place) or place == os.environ.get(VARIABLES[option][0]):
        return True
    # A place with a password, as ledgers of the first versions have it, looks like another one when it is masked.
    return mask_secrets(place) == place and place in _named | _read()


def check_trusted(option: str, place: str | None) -> None:
    """Refuse a place from a ledger that this user has not named, and remember one that is named by its variable."""
    variable, secret = VARIABLES[option]
    if is_trusted(option, place):
        if place == os.environ.get(variable):
            remember(place)
        return
    shown = "".join(letter if letter.isprintable() else "?" for letter in mask_secrets(str(place)))
    raise UserError(
        f"{option}={shown}: the ledger of this sweep names it, and you have not, so it does not get your {secret}. If you "
        f"trust it, put {variable}={shlex.quote(shown)} before this command, once."
    )


def _read() -> set[str]:
    with suppress(OSError, UnicodeDecodeError):
        return set(list_file().read_text(encoding="utf-8").split("\n"))
    return set()


def _is_harmless(place: str) -> bool:
    """Return whether a place is on this machine, and sends nothing to another."""
    if place.startswith(SQLITE):
        return not _names_remote(Path(place.removeprefix(SQLITE).partition("?")[0]))
    return place in OWN or place.startswith(FILE)


def _names_remote(database: Path) -> bool:
    """Return whether the artifacts of an MLflow database are on another machine, or may be moved there by a trigger."""
    if not database.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            looks = [f"SELECT 1 FROM {table} WHERE {REMOTE.format(PLACES[table])}" for table in tables & PLACES.keys()]
            return any(opened.execute(f"{look} LIMIT 1").fetchone() for look in [CHANGING, *looks])
    except sqlite3.OperationalError:  # it is locked, for example
        return True
    except sqlite3.DatabaseError:  # this is no database, so MLflow cannot read it either
        return False
