"""Standard output and error that may be closed, full, or a pipe whose reader has left: none of that ends a command."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any


class Output(io.FileIO):
    """A file that takes what it can; after the first failure it takes nothing more, and `failure` says why."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return len(data)


def guard_output() -> None:
    """Open what the caller had closed, so that no file of ours gets its number, and let no write to it raise."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = _guard(1, sys.stdout), _guard(2, sys.stderr)


def _guard(number: int, before: Any) -> io.TextIOWrapper:
    if before is not None:
        before.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(Output(number, "w", closefd=False)),
        encoding=getattr(before, "encoding", "utf-8"),
        errors="replace",  # a terminal without `±` shows a question mark
        line_buffering=number == 2 or os.isatty(number),
    )


def report_lost_output() -> bool:
    """Say on standard error that standard output could not be written; returns whether that was so.

    A pipe whose reader has left is no failure: `sweep list | head -1` has what it wanted.
    """
    sys.stdout.flush()
    failure = sys.stdout.buffer.raw.failure  # type: ignore[union-attr]
    if failure is None or failure.errno == errno.EPIPE:
        return False
    print(
        f"sweep: standard output: {failure.strerror}, so what it should show is lost. Send it elsewhere.",
        file=sys.stderr,
    )
    return True
