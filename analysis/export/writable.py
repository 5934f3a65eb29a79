"""Whether something can be written, found out before the work whose result it is."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from training.errors import UserError


def check_folder(field: str, folder: Path, shown: Path | None = None) -> None:
    """Try to make a folder and a file in it, and leave nothing of that behind; `shown` is what the user named.

    Raises:
        UserError: it is a file, or nothing can be written there.
    """
    made: list[Path] = []
    try:
        for part in reversed([folder, *folder.parents]):
            if not part.exists():
                part.mkdir(exist_ok=True)
                made.append(part)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise cannot_write(field, shown or folder, error) from None
    finally:
        for part in reversed(made):
            with suppress(OSError):  # somebody else uses it by now
                part.rmdir()


def check_file(field: str, file: Path) -> None:
    """Find out whether a file can be written, as `check_folder` does.

    Raises:
        UserError: it is a folder, or its folder cannot be written to.
    """
    try:
        is_folder = file.is_dir()
    except OSError as error:
        raise cannot_write(field, file, error) from None
    if is_folder:
        raise UserError(f"{field}={file}: this is a folder. Name a file.")
    check_folder(field, file.parent, file)


def cannot_write(field: str, path: Path, error: OSError) -> UserError:
    """The refusal for what the system said."""
    return UserError(f"{field}={path}: it cannot be written to ({error.strerror or error}). Name another place.")
