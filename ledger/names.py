"""Names of sweeps: one rule for all commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

from training.errors import UserError

LONGEST = 100
# A name that begins with `-` would be an option, and one that begins with `.` a hidden or the parent folder. Without `/`,
# a name is never a path.
PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
FOLLOW_UPS = ("-confirm", "-ablate")  # commands append these to a name, which must then still be short enough


def check_name(name: str, field: str = "") -> str:
    """Return the name if it is valid; `field` is the option that it came from."""
    shown = f"{field}{'=' * bool(field)}{name if len(name) <= LONGEST else name[:LONGEST] + '…'}"
    if not PATTERN.fullmatch(name):
        path = " To use sweeps in another folder, give --storage." if "/" in name and not field else ""
        raise UserError(
            f"{shown or repr(name)}: not a valid name for a sweep. Use only letters, digits, '-', '_' and '.', and begin with "
            f"a letter, a digit or '_'.{path}"
        )
    counted = name
    for ending in FOLLOW_UPS:
        counted = counted.removesuffix(ending)
    if len(counted) > LONGEST:
        raise UserError(f"{shown}: the name has {len(name)} letters. Use {LONGEST} at most.")
    return name


def own_place(folder: str, name: str, sweep_id: str, read_id: Callable[[Path], str | None], ending: str = "") -> Path:
    """Return the place in a folder for what a sweep writes: NAME, or NAME-2 and so on where another sweep has that.

    `read_id` returns the id of the sweep that has a place; None if the place is free, or does not say.
    """
    places = (Path(folder, f"{name}{'' if number == 1 else f'-{number}'}{ending}") for number in count(1))
    return next(place for place in places if read_id(place) in (None, sweep_id))
