"""Copies of a sweep at a URI, such as s3://bucket/sweeps: what another machine needs to continue it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.formatting import mask_secrets
from training.errors import UserError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

TRIES, FIRST_PAUSE_SECONDS = 5, 1.0  # an upload waits 1, 2, 4 and 8 seconds between the tries
CHECKPOINT = ("best.ckpt", "log.txt", "last.ckpt")  # in this order: `last.ckpt` names an epoch whose best weights exist
# What Arrow or fsspec can write. Their other schemes only read, or write to the memory of one process.
SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "webhdfs", "oss", "sftp", "ssh", "ftp", "smb")


@dataclass(frozen=True)
class CopyPlace:
    """A folder at a URI. Its methods raise OSError if the store does not answer, or refuses."""

    uri: str

    def child(self, name: str) -> CopyPlace:
        return CopyPlace(f"{self.uri.rstrip('/')}/{name}")

    def write(self, path: Path) -> None:
        """Copy a file to this folder, under its name."""
        from pyarrow.fs import LocalFileSystem

        files, folder = self._open()
        target = f"{folder}/{path.name}"
        if files.type_name not in ("s3", "gcs", "abfs"):  # these have no folders
            files.create_dir(folder, recursive=True)
        if files.type_name in ("local", "hdfs"):  # there a reader would see half of a file
            _copy(path, LocalFileSystem(), f"{target}.partial", files)
            files.move(f"{target}.partial", target)
        else:
            _copy(path, LocalFileSystem(), target, files)

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        from pyarrow.fs import FileType

        files, folder = self._open()
        return bool(files.get_file_info(f"{folder}/{name}").type == FileType.File)

    def read(self, name: str, path: Path) -> bool:
        """Copy a file from this folder, at once or not at all. Returns whether it exists."""
        from pyarrow.fs import LocalFileSystem

        if not self.has(name):
            return False
        files, folder = self._open()
        partial = path.with_name(f"{path.name}.fetched")
        _copy(f"{folder}/{name}", files, partial, LocalFileSystem())
        partial.replace(path)
        return True

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        if self.has(name):
            files, folder = self._open()
            files.delete_file(f"{folder}/{name}")

    def _open(self) -> tuple[FileSystem, str]:
        from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

        try:
            filesystem, path = FileSystem.from_uri(self.uri)
        except ValueError:  # Arrow knows no such scheme
            from fsspec.core import url_to_fs

            other, path = url_to_fs(self.uri)
            filesystem = PyFileSystem(FSSpecHandler(other))
        return filesystem, path.rstrip("/")


def _copy(source: object, source_files: FileSystem, target: object, target_files: FileSystem) -> None:
    from pyarrow.fs import copy_files

    copy_files(str(source), str(target), source_filesystem=source_files, destination_filesystem=target_files)


def check_uri(option: str, uri: str) -> str:
    """Return an address without a trailing slash, if it is a URI."""
    shown = mask_secrets(uri)
    scheme, _, rest = uri.partition("://")
    if scheme not in SCHEMES or not rest.strip("/") or (scheme == "file" and not rest.startswith("/")):
        raise UserError(
            f"{option}={shown}: this is no folder in a store that can be written to. Write it as s3://bucket/folder, "
            "gs://…, abfs://… or file:///folder."
        )
    if shown != uri:
        raise UserError(
            f"{option}={shown}: a password would be in the ledger. Set the variables of the store instead, such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return uri.rstrip("/")


@contextmanager
def _refusing(sentence: str) -> Iterator[None]:
    """Add the reason to a sentence about a store that does not answer, refuses, or needs a missing library."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"{sentence} ({describe_store_error(error)}).") from None


def check_place(uri: str) -> None:
    """Write a file to the folder of `--copy-to`, and remove it."""
    place, refusal = CopyPlace(uri), f"--copy-to={uri}: it cannot be written to from {os.uname().nodename}"
    with _refusing(refusal), tempfile.TemporaryDirectory() as folder:
        test = Path(folder) / f".test-{time.time_ns()}"
        test.write_text("This file can be removed.")
        place.write(test)
        place.delete(test.name)


def has_sweep(option: str, uri: str, name: str) -> bool:
    """Return whether there is a copy of a sweep with this name."""
    with _refusing(f"{option}={uri}: it cannot be read"):
        return CopyPlace(uri).child(name).has("ledger.jsonl")


def send(place: CopyPlace, path: Path) -> None:
    """Copy a file to a place, with some patience.

    Raises:
        OSError: the store did not answer, or refused, several times.
    """
    for number in range(TRIES - 1):
        with suppress(OSError):
            place.write(path)
            return
        time.sleep(FIRST_PAUSE_SECONDS * 2**number)
    place.write(path)


def send_trial(place: CopyPlace, folder: Path, has_new_best: bool) -> None:
    """Copy the checkpoints and the log of a trial.

    Raises:
        OSError: the store did not answer, or refused, several times.
    """
    for name in CHECKPOINT if has_new_best else CHECKPOINT[1:]:
        if (folder / name).exists():
            send(place, folder / name)


def fetch_trial(place: CopyPlace, folder: Path, is_new: bool) -> None:
    """Get the checkpoints of a trial. For a new one, remove those that are here and there instead.

    They belong to another recipe with the same number, of a driver whose last events were lost with its machine.

    Raises:
        OSError: the store does not answer.
    """
    for name in CHECKPOINT:
        if is_new:
            place.delete(name)
            (folder / name).unlink(missing_ok=True)
        else:
            place.read(name, folder / name)


def fetch_sweep(uri: str, path: Path, option: str = "--from") -> None:
    """Copy the ledger of a sweep, and the space of its preset, from `uri/NAME` to a new folder."""
    if path.exists():
        raise UserError(f"{option}={uri}: {path} exists already. Leave {option} out to continue it, or remove it.")
    if not has_sweep(option, uri, path.name):
        raise UserError(f"{option}={uri}: there is no sweep {path.name}. Check the URI and the name.")
    place, partial = CopyPlace(uri).child(path.name), path.with_name(f".{path.name}-fetched")
    partial.mkdir(parents=True, exist_ok=True)
    for name in ("preset.yaml", "ledger.jsonl"):
        place.read(name, partial / name)
    partial.rename(path)


def describe_store_error(error: Exception) -> str:
    """Return the reason in one line, without the request's number."""
    return str(error).strip().split("\n")[0].partition(" (Request ID")[0].rstrip(".")[:300]
