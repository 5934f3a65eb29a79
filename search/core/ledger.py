"""The ledger: everything that happened in a sweep, one JSON object a line, appended and never changed."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from training.errors import UserError

FORMAT = 1
Event = dict[str, Any]


class Ledger:
    """An append-only file of events; `append` returns once the event is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = list(read_events(path)) if path.exists() else []
        _cut_torn_line(path)
        self._file = path.open("ab", buffering=0)  # what a full disk refused must not linger in a buffer
        if not self.events:
            self.append({"format": FORMAT})

    def append(self, event: Event) -> Event:
        """Write an event; its time is added where it has none.

        Raises:
            OSError: the disk is full or gone; nothing of the event then counts.
        """
        event = {"time": time.time(), **event}
        line = (json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)
            raise
        self.events.append(event)
        return event

    def close(self) -> None:
        self._file.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a ledger, without a torn last line.

    Raises:
        UserError: not a ledger, of another format, or damaged before its last line.
    """
    number = 0
    for number, event in enumerate(read_lines(path), start=1):
        if event is None:
            raise UserError(f"{path}:{number}: not a line of a ledger; the file is damaged. {_way_out(path)}")
        if number == 1:
            check_format(path, event)
        yield event
    if number == 0:
        raise UserError(f"{path}: the ledger is empty. {_way_out(path)}")


def read_lines(path: Path) -> Iterator[Event | None]:
    """The lines of a ledger, without a torn last one; None for a line that is no event.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: the ledger cannot be read ({error.strerror}).") from None
    for line in lines[:-1]:  # what follows the last newline is empty or torn
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        yield event if isinstance(event, dict) else None


def check_format(path: Path, first: Event) -> None:
    """Refuse a ledger of another format than this version reads.

    Raises:
        UserError: it is one.
    """
    if first.get("format") != FORMAT:
        raise UserError(f"{path}: format {first.get('format')} is not the {FORMAT} that this version reads.")


def sweep_header(path: Path, events: Iterable[Event]) -> Event:
    """The event that says what the sweep is.

    Raises:
        UserError: there is none.
    """
    for event in events:
        if event.get("event") == "sweep":
            return event
    raise UserError(f"{path}: the line that says what the sweep is is missing. {_way_out(path)}")


def _way_out(path: Path) -> str:
    return f"Keep its whole lines: sweep repair {path.parent.name}."


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
