"""Names of sweeps: one rule, for every command that takes or makes one."""

from __future__ import annotations

import re

from training.errors import UserError

LONGEST = 100
# A first `-` would be an option, a first `.` a hidden folder or the one above. Without `/`, a name is never a path.
PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
FOLLOW_UPS = ("-confirm", "-ablate")  # what commands append to a sweep's name, which must fit then too


def check_name(name: str, field: str = "") -> str:
    """The name, if it is one; `field` is the option it came from.

    Raises:
        UserError: it has other characters, begins with a dot or a dash, or is too long.
    """
    shown = f"{field}{'=' * bool(field)}{name if len(name) <= LONGEST else name[:LONGEST] + '…'}"
    if not PATTERN.fullmatch(name):
        path = " To use sweeps in another folder, give --storage." if "/" in name and not field else ""
        raise UserError(
            f"{shown or repr(name)}: not a name of a sweep. Use letters, digits, '-', '_' and '.' only, and begin with a "
            f"letter, a digit or '_'.{path}"
        )
    counted = name
    for ending in FOLLOW_UPS:
        counted = counted.removesuffix(ending)
    if len(counted) > LONGEST:
        raise UserError(f"{shown}: a name of {len(name)} letters. Use {LONGEST} at most.")
    return name
