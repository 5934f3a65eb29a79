"""The folder of a sweep: its name, its files, and the lock that lets one driver at a time in."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from training.errors import UserError

NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@dataclass(frozen=True)
class SweepFolder:
    """`<storage>/<name>`: `space.yaml`, `ledger.jsonl`, `trials/0007/`, `ray/`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def space(self) -> Path:
        return self.path / "space.yaml"

    @property
    def stop_request(self) -> Path:
        return self.path / "stop"

    @property
    def ray(self) -> Path:
        return self.path / "ray"

    def trial(self, number: int) -> Path:
        return self.path / "trials" / f"{number:04d}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the sweep for one driver; the lock goes with the process, however it ends.

        Raises:
            UserError: another driver holds it.
        """
        lock = FileLock(self.path / "lock")
        holder = self.path / "driver.json"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = json.loads(holder.read_text()) if holder.exists() else {"pid": "?", "host": "?"}
            raise UserError(
                f"{self.name} is being run by process {who['pid']} on {who['host']}. "
                f"Stop it first: sweep stop {self.name}."
            ) from None
        try:
            holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
            self.stop_request.unlink(missing_ok=True)
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def is_running(self) -> bool:
        """Whether a driver holds the lock."""
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def remove(self) -> None:
        shutil.rmtree(self.path)


def new_folder(storage: Path, name: str | None, space_name: str) -> SweepFolder:
    """The folder a new sweep is to have; it is not made yet.

    Raises:
        UserError: the name is taken or no name for a folder.
    """
    if name is None:
        number = 1
        while (storage / f"{space_name}-{number}").exists():
            number += 1
        name = f"{space_name}-{number}"
    if not name or set(name) - NAME_CHARACTERS or name.startswith("."):
        raise UserError(f"--name={name}: use letters, digits, '-', '_' and '.' only.")
    folder = SweepFolder(storage / name)
    if folder.path.exists():
        raise UserError(
            f"--name={name}: {folder.path} exists already. Choose another name, go on with it (sweep resume {name}), or "
            f"remove it (sweep rm {name})."
        )
    return folder


def open_folder(storage: Path, name: str) -> SweepFolder:
    """The folder of an existing sweep.

    Raises:
        UserError: there is no such sweep.
    """
    folder = SweepFolder(storage / name)
    if not folder.ledger.exists():
        known = [found.name for found in list_folders(storage)]
        hint = f"There are: {', '.join(known)}." if known else "There are none; start one with sweep run."
        raise UserError(f"{name}: no such sweep in {storage}. {hint}")
    return folder


def list_folders(storage: Path) -> list[SweepFolder]:
    """All sweeps in a storage folder, in order of their names."""
    return [SweepFolder(path.parent) for path in sorted(storage.glob("*/ledger.jsonl"))]
