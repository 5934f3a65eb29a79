"""The folder of a sweep: its name, its files, and the lock that allows one driver at a time."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ledger import STORAGE_VARIABLE, SWEEPS
from ledger.names import check_name
from training.errors import UserError
from training.process.text_files import keep_json, parse_json, recall_json
from training.process.writable import cannot_write, check_folder

# `is_running` takes the lock for an instant, and a driver names itself just after it took the lock: both are waited for.
PROBE_SECONDS, LOCK_SECONDS = 0.1, 0.5
PARTS = ("ledger.jsonl", "space.yaml", "trials", "ray", "lock")  # one of these at least is in each sweep
# All that a sweep's folder can hold, with what a full disk leaves, and what its folders can.
OURS = re.compile(
    r"((ledger\.jsonl|(space|preset)\.yaml|trials|ray|requests|final|lock|stop|(driver|processes)\.json|images\.txt\.gz"
    r"|(confirm|ablate)\.(json|html)|worst\.png|report\.html)(\.partial)?)"
)
SWEEP_LINE = re.compile(rb'\{"time":[0-9.]+,"event":"sweep","name":"')  # the second line of each ledger
TRAINING = r"(recipe\.yaml|log\.txt|\w+\.ckpt)(\.\w+)*"
OURS_INSIDE = {
    "trials": re.compile(r"\d{4,}"),
    "ray": re.compile(r"\d{8}-\d{6}.*"),
    "requests": re.compile(r"\.[0-9a-f]+|\d+-[0-9a-f]+\.(json|unreadable)"),
    "final": re.compile(rf"[\da-f-]{{36}}|{TRAINING}"),
}


@dataclass(frozen=True)
class Holder:
    """What `driver.json` holds: the process that has the lock."""

    pid: int
    host: str


@dataclass(frozen=True)
class SweepFolder:
    """`<storage>/<name>`: `space.yaml`, `ledger.jsonl`, `trials/0007/`, `ray/`."""

    path: Path
    known_running: bool | None = None  # for a copy from another machine, whose lock cannot be seen here

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def called(self) -> str:
        """The name as a command here finds it: with `--storage` where that is another folder than the default."""
        default, there = Path(os.environ.get(STORAGE_VARIABLE) or SWEEPS).absolute(), self.path.absolute().parent
        return self.name if self.is_copy or there == default else f"{self.name} --storage {shlex.quote(str(there))}"

    @property
    def is_copy(self) -> bool:
        return self.known_running is not None

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def space(self) -> Path:
        return self.path / "space.yaml"

    @property
    def preset(self) -> Path:
        """The space that a preset made, with its reasons; only in sweeps of a preset."""
        return self.path / "preset.yaml"

    @property
    def images(self) -> Path:
        """The image files of the data set when the sweep began."""
        return self.path / "images.txt.gz"

    @property
    def stop_request(self) -> Path:
        return self.path / "stop"

    @property
    def processes(self) -> Path:
        """The processes of the driver; it stays if the driver was killed."""
        return self.path / "processes.json"

    @property
    def requests(self) -> Path:
        """Recipes to add and trials to stop, for the driver."""
        return self.path / "requests"

    @property
    def ray(self) -> Path:
        return self.path / "ray"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    def trial(self, number: int) -> Path:
        return self.trials / f"{number:04d}"

    def trial_numbers(self) -> list[int]:
        """Return the numbers of all trials that have a folder."""
        return [int(path.name) for path in self.trials.glob("*") if path.name.isdecimal()]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the sweep for one driver. The lock is released when the process ends in any way."""
        lock = FileLock(self.path / "lock")
        holder = self.path / "driver.json"
        try:
            lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            known = recall_json(holder, Holder)
            where = f"process {known.pid} on {known.host}" if known else "another process"
            raise UserError(f"{self.name} is running in {where}. Stop it first: sweep stop {self.called}.") from None
        except OSError as error:
            raise cannot_write("--storage", self.path, error) from None
        try:
            with suppress(OSError):  # it only names the driver in a sentence; a full disk is noticed by the ledger
                keep_json(holder, asdict(Holder(os.getpid(), socket.gethostname())))
            if self.stop_request.is_file():
                self.stop_request.unlink(missing_ok=True)
            yield
        finally:
            for path in (holder, self.processes):
                with suppress(OSError):  # it is of no use to the next driver, which also reads over a damaged one
                    path.unlink(missing_ok=True)
            lock.release()

    def is_running(self) -> bool:
        """Return whether a driver has the lock."""
        if self.known_running is not None:
            return self.known_running
        if not (self.path / "lock").exists():
            return False
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=PROBE_SECONDS)
        except Timeout:
            return True
        except OSError:  # the sweep of another user, which can be read but not locked
            return (self.path / "driver.json").exists()
        lock.release()
        return False

    def remove(self) -> list[Path]:
        """Delete what a sweep makes, and the folder if it is then empty. Returns what is somebody's own, and stays.

        Of a link only the link is deleted, be it the folder or a part of it.
        """
        try:
            if self.path.is_symlink():
                self.path.unlink()
                return []
            stays = list(_find_others(self.path))
            others = {path.parent for path in stays} | set(stays)
            for path in self.path.iterdir():
                if path not in others:
                    _delete(path)
                elif path.is_dir() and path not in stays:
                    for inner in set(path.iterdir()) - others:
                        _delete(inner)
            if not stays:
                self.path.rmdir()
            return stays
        except OSError as error:
            raise UserError(f"{error.filename}: it cannot be removed ({error.strerror}).") from None

    def refuse_links(self) -> None:
        """Refuse a sweep in which a part of ours is a link: a driver would write to, or delete, what it leads to."""
        for folder in (self.path, self.trials, self.requests, self.ray):
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_symlink() and (folder != self.path or OURS.fullmatch(entry.name)):
                        raise UserError(
                            f"{entry.path}: this part of a sweep is a link, and a sweep makes none. Put what it leads to in "
                            "its place if you trust it."
                        )


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _find_others(folder: Path) -> Iterator[Path]:
    """Yield the files and folders that no sweep makes, at the top of its folder and inside those of its parts."""
    for path in sorted(folder.iterdir()):
        if not OURS.fullmatch(path.name):
            yield path
        elif (pattern := OURS_INSIDE.get(path.name)) and path.is_dir() and not path.is_symlink():
            yield from (inner for inner in sorted(path.iterdir()) if not pattern.fullmatch(inner.name))


def new_folder(storage: Path, name: str | None, space_name: str) -> SweepFolder:
    """Return the folder of a new sweep without creating it."""
    check_folder("--storage", storage)
    if name is None:
        number = 1
        check_name(f"{space_name}-{number}", "--name (from the space's file)")
        while (storage / f"{space_name}-{number}").exists():
            number += 1
        name = f"{space_name}-{number}"
    folder = SweepFolder(storage / check_name(name, "--name"))
    if folder.path.exists():
        raise UserError(
            f"--name={name}: {folder.path} exists already. Choose another name, continue it (sweep resume {folder.called}), or "
            f"remove it (sweep rm {folder.called})."
        )
    return folder


def open_folder(storage: Path, name: str, field: str = "") -> SweepFolder:
    """Return the folder of an existing sweep that has its ledger; `field` is the option that named it."""
    folder = find_folder(storage, name, field)
    if not folder.ledger.is_file():
        raise UserError(describe_loss(folder))
    folder.refuse_links()
    return folder


def find_folder(storage: Path, name: str, field: str = "") -> SweepFolder:
    """Return the folder of an existing sweep, which may be damaged."""
    folder = SweepFolder(storage / check_name(name, field))
    if not _is_sweep(folder.path):
        known = [sweep.name for sweep in list_folders(storage)]
        hint = f"There are: {', '.join(known)}." if known else "There are none; start one with sweep run."
        raise UserError(f"{field}{'=' * bool(field)}{name}: no such sweep in {storage}. {hint}")
    return folder


def list_folders(storage: Path) -> list[SweepFolder]:
    """Return all sweeps in a storage folder, also damaged ones, sorted by name."""
    try:
        paths = sorted(storage.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"--storage={storage}: {error.strerror}. Name the folder that holds the sweeps.") from None
    return [SweepFolder(path) for path in paths if not path.name.startswith(".") and _is_sweep(path)]


def find_latest(storage: Path) -> SweepFolder:
    """Return the sweep whose ledger was written last: a running one, if there is one."""
    if not (folders := list_latest(storage)):
        raise UserError(f"--storage={storage}: there is no sweep. Start one with sweep run, or name another folder.")
    return folders[0]


def list_latest(storage: Path) -> list[SweepFolder]:
    """Return all sweeps in a storage folder that have a ledger; that which was written last is the first."""
    folders = [folder for folder in list_folders(storage) if folder.ledger.is_file()]
    return sorted(folders, key=lambda folder: folder.ledger.stat().st_mtime, reverse=True)


def describe_loss(folder: SweepFolder) -> str:
    """Return a sentence about a sweep without a ledger: what is left, and what the user can do."""
    again = f" Search its space again: sweep run {folder.space}." if folder.space.is_file() else ""
    return (
        f"{folder.name}: its ledger, {folder.ledger}, is missing, so the results of its trials are lost.{again} Remove the "
        f"sweep: sweep rm {folder.called}."
    )


def _is_sweep(path: Path) -> bool:
    """Return whether a folder is a sweep, or the rest of one: `rm` must not delete any other."""
    try:
        if not set(PARTS).intersection(os.listdir(path)):
            return False
        return _is_ledger(path / "ledger.jsonl") or not any(True for _ in _find_others(path))
    except OSError:  # not a folder, or one that this user cannot read
        return False


def _is_ledger(path: Path) -> bool:
    """Return whether a file begins as a ledger does: with a time and a format, or if that line is damaged, with a sweep."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first, second = file.readline(1000), file.readline(1000)
    with suppress(ValueError):
        values = parse_json(first)
        return isinstance(values, dict) and values.keys() == {"time", "format"}
    return SWEEP_LINE.match(second) is not None
