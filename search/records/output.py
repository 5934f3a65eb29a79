"""Print the result of a command for other programs: JSON or CSV alone on the standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from search.display.records import to_csv, to_json
from search.display.tables.columns import make_console

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def apart(is_for_programs: bool) -> Iterator[Console]:
    """Return a console for the messages of the block. For programs, all that the block prints goes to standard error."""
    if not is_for_programs:
        yield make_console()
        return
    with redirect_stdout(sys.stderr):
        yield make_console(sys.stderr)


def print_result(whole: Any, rows: Sequence[Any], kind: type, as_json: bool) -> None:
    """Print the whole result as JSON, or else its rows, which are of one kind, as CSV."""
    print(to_json(whole) if as_json else to_csv(rows, kind).rstrip())
