"""Print the result of a command for other programs: JSON or CSV alone on the standard output."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from search.display.tables.columns import make_console
from training.recipe import flatten

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


def print_result(whole: Any, rows: Sequence[Any], row_class: type, as_json: bool) -> None:
    """Print the whole result as JSON, or else its rows, which are of one kind, as CSV."""
    print(to_json(whole) if as_json else to_csv(rows, row_class).rstrip())


def to_json(rows: Any) -> str:
    """Return a dataclass, a list of them or plain values as JSON."""
    plain = rows
    if isinstance(rows, list):
        plain = [asdict(row) for row in rows]
    elif is_dataclass(rows) and not isinstance(rows, type):
        plain = asdict(rows)
    return json.dumps(_make_plain(plain), indent=2, ensure_ascii=False, default=str)


def _make_plain(value: Any) -> Any:
    """Replace numbers that JSON does not have, such as NaN, by null."""
    if isinstance(value, dict):
        return {key: _make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(rows: Sequence[Any], row_class: type) -> str:
    """Return dataclasses as CSV with a header and the fields of a class; a mapping gives a column for each value."""
    names = [field.name for field in fields(row_class)]
    flat = [flatten(_make_plain({name: value for name, value in asdict(row).items() if name in names})) for row in rows]
    plain = [name for name in names if all(name in row for row in flat)]
    return write_csv(flat, list(dict.fromkeys([*plain, *(name for row in flat for name in row)])))


def write_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return rows of values by name as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
