"""Standard output and error: a command runs on if they are closed, full or without a reader, and its text stays text."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from ledger.formatting import remove_controls


class Output(io.FileIO):
    """A file that ignores all writes after the first failure, whose error it keeps in `failure`."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return len(data)


class PlainText(io.TextIOWrapper):
    """Standard output that removes what could command a terminal from the text of a command.

    `direct` is the same file for those that remove it themselves, and need commands of their own.
    """

    is_plain = False  # the help, which a command does not print, has colours

    def write(self, text: str) -> int:
        return super().write(remove_controls(text) if self.is_plain else text)

    @property
    def direct(self) -> _Direct:
        return _Direct(self)


class _Direct:
    def __init__(self, file: PlainText) -> None:
        self.file = file

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self.file, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def guard_output() -> None:
    """Open the standard streams that the caller had closed, and let no write to them raise.

    Otherwise the next file that we open would get the number of a closed stream.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    sys.stdout, sys.stderr = _guard(1, sys.stdout, PlainText), _guard(2, sys.stderr, io.TextIOWrapper)


def make_output_plain() -> None:
    """From now on standard output has only the text of a command."""
    if isinstance(sys.stdout, PlainText):
        sys.stdout.is_plain = True


def _guard(number: int, before: Any, wrapper: type[io.TextIOWrapper]) -> io.TextIOWrapper:
    if before is not None:
        before.flush()
    return wrapper(
        io.BufferedWriter(Output(number, "w", closefd=False)),
        encoding=getattr(before, "encoding", "utf-8"),
        errors="replace",  # a terminal without `±` shows a question mark
        line_buffering=number == 2 or os.isatty(number),
    )


def report_lost_output() -> bool:
    """Report a failed standard output on standard error. Returns whether it had failed.

    A pipe whose reader has ended is not a failure: `sweep list | head -1` has got its line.
    """
    sys.stdout.flush()
    failure = sys.stdout.buffer.raw.failure  # type: ignore[union-attr]
    if failure is None or failure.errno == errno.EPIPE:
        return False
    print(
        f"sweep: standard output: {failure.strerror}, so its content is lost. Redirect it to another file.",
        file=sys.stderr,
    )
    return True
