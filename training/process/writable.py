"""Checks that a file or folder can be written, made before the work that needs it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from training.errors import UserError


def check_folder(field: str, folder: Path, shown: Path | None = None) -> None:
    """Check that a folder can be made and written to, and leave nothing there. It need not exist.

    An error has the option that named it, `field`, and the path as the user wrote it, `shown`.
    """
    try:
        with made_for_now(folder):
            TemporaryFile(dir=folder).close()
    except OSError as error:
        raise cannot_write(field, shown or folder, error) from None


@contextmanager
def made_for_now(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; afterwards, remove those that were made and are still empty.

    A file in the folder keeps another process that made it from removing it too early.
    """
    made: list[Path] = []
    used = folder / f".in-use-{uuid.uuid4().hex}"
    try:
        for part in reversed([folder, *folder.parents]):
            if not part.exists():
                part.mkdir(exist_ok=True)
                made.append(part)
        with suppress(OSError):  # the caller finds out what is wrong with the folder
            used.touch()
        yield
    finally:
        with suppress(OSError):
            used.unlink()
        for part in reversed(made):
            with suppress(OSError):  # It is in use by now.
                part.rmdir()


def check_file(field: str, file: Path) -> None:
    """Check as `check_folder` does that a file can be written, and leave nothing there."""
    try:
        is_folder = file.is_dir()
    except OSError as error:
        raise cannot_write(field, file, error) from None
    if is_folder:
        raise UserError(f"{field}={file}: this is a folder. Name a file.")
    check_folder(field, file.parent, file)


@contextmanager
def complete_files(field: str, folder: Path, shown: Path | None = None) -> Iterator[Path]:
    """Give an empty folder for new files, which are moved into `folder` when all of them are complete.

    After an error, such as that of a full disk, none of them is there, and older files are as before. An error names
    the folder as `check_folder` does.
    """
    try:
        with made_for_now(folder), TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
            yield Path(partial)
            plain = Path(partial, ".plain")
            plain.touch()
            mode = plain.stat().st_mode  # what the umask allows; to ask for the umask, one must change it
            plain.unlink()
            for path in Path(partial).iterdir():
                if path.is_file():
                    path.chmod(mode)  # safetensors makes files that only their owner can read
                path.replace(folder / path.name)
    except OSError as error:
        raise cannot_write(field, shown or folder, error) from None


@contextmanager
def complete_file(field: str, out: Path) -> Iterator[Path]:
    """Give a path to write one file to, as in `complete_files`. A device or a pipe is written to as it is."""
    if os.path.exists(out) and not (os.path.isfile(out) or os.path.isdir(out)):
        try:
            yield out
        except BrokenPipeError:
            raise  # its reader has ended, as `head` does
        except OSError as error:
            raise cannot_write(field, out, error) from None
        return
    with complete_files(field, out.parent, out) as folder:
        yield folder / out.name


def cannot_write(field: str, path: Path, error: OSError) -> UserError:
    """The error for a failed write; `field` is the option that named the path."""
    return UserError(f"{field}={path}: it cannot be written to ({error.strerror or error}). Name another place.")
