"""Tables that fit the width of the terminal, and the console that prints them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from textwrap import wrap
from typing import IO, Any

import psutil
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from ledger.formatting import remove_controls
from ledger.recipe_text import cut

PIPED = 1000  # width in characters for a file or a pipe, so that nothing is cut or wrapped
LAST = 40  # width in characters that the last column keeps; optional columns are left out to make room for it


class _PlainConsole(Console):
    """A console whose text cannot command the terminal: names, notes and reasons come from files of others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)  # also [red] or :smile: can be a name

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(remove_controls(segment.text), segment.style)


def make_console(file: IO[str] | None = None) -> Console:
    """Return a console that redraws only in a terminal that is not recorded, and cuts nothing in a file or a pipe."""
    file = file or sys.stdout
    is_terminal = file.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else PIPED
    direct = getattr(file, "direct", file)  # standard output would remove the console's own controls
    return _PlainConsole(
        file=direct, width=width, force_interactive=None if is_terminal and not _is_recorded() else False
    )


def _is_recorded() -> bool:
    """Return whether the terminal writes into a log, in which each redraw stays: that of a CI, or of `script`."""
    with suppress(psutil.Error):
        return "CI" in os.environ or any(parent.name() == "script" for parent in psutil.Process().parents())
    return False


@dataclass(frozen=True)
class Column:
    """A column of a table. When there is no room, the column with the highest `rank` is left out first; 0 always stays."""

    title: str
    right: bool = False
    rank: int = 0


@dataclass(frozen=True)
class Columns:
    """A table that fits the width. Optional columns are left out first; then the last column is cut at a word.

    An optional column without any text is always left out.

    In the first `whole` rows the last column is wrapped instead of cut.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    whole: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            return
        titles = [column.title for column in self.columns]
        widths = [max(map(cell_len, cells)) for cells in zip(titles, *self.rows, strict=True)]
        shown = self._choose(widths, options.max_width)
        indent = sum(widths[i] + 2 for i in shown[:-1])
        room = max(8, options.max_width - indent)
        yield self._line(titles, titles[shown[-1]], widths, shown, style="bold")
        for number, cells in enumerate(self.rows):
            last = cells[shown[-1]]
            lines = wrap(last, room, break_on_hyphens=False) if number < self.whole else [cut(last, room)]
            yield self._line(cells, (lines or [""])[0], widths, shown)
            yield from (Text(" " * indent + line, no_wrap=True) for line in lines[1:])

    def _line(self, cells: Sequence[str], last: str, widths: list[int], shown: list[int], style: str = "") -> Text:
        """One line of the table; `last` is the text of its last column, which may be shortened."""
        end = shown[-1]
        last = self._pad(last, widths[end], end) if self.columns[end].right else last
        words = [self._pad(cells[i], widths[i], i) for i in shown[:-1]] + [last]
        return Text("  ".join(words).rstrip(), style=style, no_wrap=True, overflow="ellipsis")

    def _choose(self, widths: list[int], width: int) -> list[int]:
        shown = [i for i, column in enumerate(self.columns) if not column.rank or any(row[i] for row in self.rows)]
        optional = sorted((i for i in shown if self.columns[i].rank), key=lambda i: -self.columns[i].rank)
        for i in optional:
            if sum(widths[j] + 2 for j in shown[:-1]) + min(LAST, widths[shown[-1]]) <= width:
                break
            shown.remove(i)
        return shown

    def _pad(self, cell: str, width: int, i: int) -> str:
        space = " " * (width - cell_len(cell))
        return space + cell if self.columns[i].right else cell + space
