"""The ledger: an append-only file with one line for each event of a sweep. docs/ledger.md describes the format."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from search.storage.events import AnyEvent, SweepStarted, decode, encode
from training.errors import UserError

FORMAT = 1


class Ledger:
    """An append-only file of events; `append` returns when the event is on the disk."""

    def __init__(self, path: Path, events: Iterable[AnyEvent] | None = None) -> None:
        """Open a ledger, or begin one. An incomplete last line is removed. With `events` the file is not read again.

        Raises:
            UserError: the file is not a ledger, or is damaged before its last line.
        """
        self.path = path
        is_new = not path.exists()
        self.events = list(events if events is not None else [] if is_new else read_events(path))
        _cut_torn_line(path)
        self._file = path.open("ab", buffering=0)  # a buffer would write a failed line later, when the disk has space
        if is_new:
            self._write(first_line(time.time()))

    def append(self, event: AnyEvent) -> AnyEvent:
        """Write an event.

        Raises:
            OSError: the disk is full or missing; the file is then unchanged.
        """
        self._write(encode(event))
        self.events.append(event)
        return event

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)
            raise

    def close(self) -> None:
        self._file.close()


def first_line(time: float) -> bytes:
    """Return the line that names the format; `time` is in seconds since 1970."""
    return json.dumps({"time": time, "format": FORMAT}, separators=(",", ":")).encode() + b"\n"


def read_events(path: Path) -> Iterator[AnyEvent]:
    """Read the events of a ledger, without an incomplete last line.

    Raises:
        UserError: the file cannot be read, has another format, or is damaged before its last line.
    """
    lines = read_lines(path)
    if not lines:
        raise UserError(f"{path}: the ledger is empty. {_way_out(path)}")
    check_format(path, lines[0])
    for number, line in enumerate(lines[1:], start=2):
        event = try_decode(line)
        if event is None:
            raise damage_at(path, number)
        yield event


def damage_at(path: Path, number: int) -> UserError:
    """Return the error about a line that is not an event; `number` counts from 1."""
    return UserError(f"{path}:{number}: not a line of a ledger; the file is damaged. {_way_out(path)}")


def read_lines(path: Path) -> list[bytes]:
    """Read the complete lines of a file, without the newlines and without an incomplete last line.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        return path.read_bytes().split(b"\n")[:-1]  # after the last newline there is nothing or an incomplete line
    except OSError as error:
        raise UserError(f"{path}: the ledger cannot be read ({error.strerror}).") from None


def try_decode(line: bytes) -> AnyEvent | None:
    """Read one line. Returns None if it is not an event."""
    try:
        return decode(line)
    except (ValueError, RecursionError):
        return None


def is_format_line(line: bytes) -> bool:
    """Return whether a line is a valid first line, of any format."""
    try:
        return "format" in json.loads(line)
    except (ValueError, RecursionError, TypeError):
        return False


def check_format(path: Path, line: bytes) -> None:
    """Refuse a ledger of another format than this version reads.

    Raises:
        UserError: the first line names another format or no format.
    """
    if not is_format_line(line):
        raise damage_at(path, 1)
    if (number := json.loads(line)["format"]) != FORMAT:
        raise UserError(f"{path}: format {number} is not the {FORMAT} that this version reads.")


def find_header(path: Path, events: Iterable[AnyEvent]) -> SweepStarted:
    """Find the event that describes the sweep.

    Raises:
        UserError: there is none.
    """
    for event in events:
        if isinstance(event, SweepStarted):
            return event
    raise UserError(f"{path}: the line that describes the sweep is missing. {_way_out(path)}")


def _way_out(path: Path) -> str:
    return f"Keep its complete lines: sweep repair {path.parent.name}."


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
