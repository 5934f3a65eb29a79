"""The ledger: an append-only file with one line for each event of a sweep. docs/ledger.md describes the format."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ledger.events import KINDS, AnyEvent, SweepStarted, decode, encode
from ledger.folder import SweepFolder
from ledger.placeholders import add_placeholders
from training.errors import UserError
from training.process.text_files import open_new, parse_json

FORMAT = 1
# Lines without which nothing can be read: the format, the sweep and its first recipes, written at once with the folder.
HEAD = 3
WORD = re.compile(r"[a-z_]{1,40}")  # the kind of an event: printed, so nothing else
logger = logging.getLogger("search")


class Ledger:
    """An append-only file of events; `append` returns when the event is on the disk."""

    def __init__(self, path: Path, events: Iterable[AnyEvent] | None = None) -> None:
        """Open a ledger, or begin one. An incomplete last line is removed. With `events` the file is not read again."""
        self.path = path
        self.was_removed = False  # True after the file was removed while it was open, and written again
        is_new = not path.exists()
        self.events = list(events if events is not None else [] if is_new else read_events(path))
        if not is_new and not (data := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
        self._file = path.open("ab", buffering=0)  # a buffer would write a failed line later, when the disk has space
        if is_new:
            self._write(first_line(time.time()))

    def append(self, event: AnyEvent) -> AnyEvent:
        """Write an event.

        Raises:
            OSError: the disk is full or missing; the file is then unchanged.
        """
        # Inode numbers are not compared: some network file systems change them.
        if not self.path.exists() or not os.fstat(self._file.fileno()).st_nlink:
            self._restore()
        self._write(encode(event))
        self.events.append(event)
        return event

    def _restore(self) -> None:
        """Write all events to a new file: what goes to a removed one is lost when the process ends."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.unlink(missing_ok=True)
        open_new(partial).close()
        file = partial.open("ab", buffering=0)
        self._file, removed = file, self._file
        removed.close()
        self._write(b"".join([first_line(time.time()), *map(encode, self.events)]))
        partial.replace(self.path)
        self.was_removed = True

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


def read_events(
    path: Path,
    is_copy: bool = False,
    missing: set[str] | None = None,
    read_line: Callable[[bytes], AnyEvent | None] | None = None,
) -> Iterator[AnyEvent]:
    """Read the events of a ledger, or of the copy of one from an MLflow store.

    With `missing`, parts of plugins that are not loaded are read by placeholders, and their names added to that set. Lines that
    are damaged or incomplete are left out with one warning, and so are events of a kind that this version does not know.
    `read_line` takes the place of `try_decode`.
    """
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: the ledger cannot be read ({error.strerror}).") from None
    if not lines:  # no newline yet
        raise _describe_damage(path, is_copy, fault="the ledger is empty")
    check_format(path, lines[0], is_copy)
    unknown, damaged = Counter[str](), list[str]()
    for number, line in enumerate(lines[1:], start=2):
        if missing is not None:
            missing |= add_placeholders(line)
        if event := (read_line or try_decode)(line):
            yield event
        elif kind := _find_unknown_kind(line):
            unknown[kind] += 1
        elif number <= HEAD:
            raise _describe_damage(path, is_copy, f":{number}")
        else:
            damaged.append(_describe_line(number, line))
    if torn:
        damaged.append(f"{_describe_line(len(lines) + 1, torn)}, which is incomplete")
    if damaged:
        place = path.parent.name if is_copy else path
        logger.warning("%s: damaged, and read without line %s.", place, ", line ".join(damaged))
    if unknown:
        logger.warning(
            "%s: %d lines of a later version were left out (%s).", path, unknown.total(), ", ".join(sorted(unknown))
        )


def _find_unknown_kind(line: bytes) -> str | None:
    try:
        kind = parse_json(line).get("event")
    except (ValueError, RecursionError, AttributeError):  # no JSON, or no mapping
        return None
    return kind if isinstance(kind, str) and kind not in KINDS and WORD.fullmatch(kind) else None


def _describe_line(number: int, line: bytes) -> str:
    """Return the number of a damaged line, with what is left of its event's kind and of its trial's number."""
    words = []
    if kind := re.search(rb'"event":\s*"([a-z_]{1,40})"', line):
        words.append(kind[1].decode())
    if trial := re.search(rb'"trial":\s*(\d{1,6})', line):
        words.append(f"of trial {int(trial[1]):04d}")
    return f"{number} ({' '.join(words)})" if words else str(number)


def _describe_damage(
    path: Path, is_copy: bool, place: str = "", fault: str = "not a line of a ledger; the file is damaged"
) -> UserError:
    if is_copy:
        return UserError(
            f"{path.parent.name}: the copy of its ledger in the MLflow store is damaged ({path.name}{place}: {fault}). "
            "Read the sweep where its folder is, or later: its driver copies the ledger again."
        )
    folder = SweepFolder(path.parent)
    again = f" Search its space again: sweep run {folder.space}." if folder.space.is_file() else ""
    return UserError(f"{path}{place}: {fault}.{again} Remove the sweep: sweep rm {folder.called}.")


def try_decode(line: bytes) -> AnyEvent | None:
    """Read one line. Returns None if it is not an event."""
    try:
        return decode(line)
    except (ValueError, RecursionError):
        return None


def check_format(path: Path, line: bytes, is_copy: bool = False) -> None:
    """Refuse a ledger of another format than this version reads."""
    try:
        number = parse_json(line)["format"]
    except (ValueError, TypeError, KeyError):
        raise _describe_damage(path, is_copy, ":1") from None
    if number != FORMAT:
        raise UserError(f"{path}: format {number} is not the {FORMAT} that this version reads.")


def find_header(path: Path, events: Iterable[AnyEvent], is_copy: bool = False) -> SweepStarted:
    """Find the event that describes the sweep."""
    for event in events:
        if isinstance(event, SweepStarted):
            return event
    raise _describe_damage(path, is_copy, fault="the line that describes the sweep is missing")
