"""Show the phases of a start with their times: redrawn in a terminal, one plain line for each elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.table import Table

from ledger.formatting import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

REFRESH = 4  # redraws per second


class Phases:
    """Shows the phases of a command before its first result, inside a `with` block."""

    def __init__(self, console: Console, began: float | None = None) -> None:
        """`began` is the begin of the command, by the monotonic clock, if it did something before."""
        self.console = console
        self.began = time.monotonic() if began is None else began
        self.phases: list[tuple[str, float]] = []  # name and begin
        self.ended: float | None = None
        self.live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = time.monotonic()
        if self.live:
            self.live.stop()

    def begin(self, name: str) -> None:
        """End the current phase and begin this one."""
        now = time.monotonic()
        self.phases.append((name, now))
        if self.console.is_interactive and self.live is None:
            self.live = Live(get_renderable=self.render, console=self.console, refresh_per_second=REFRESH)
            self.live.start()
        elif self.live is None:
            self.console.print(f"[{format_seconds(now - self.began)}] {name}", markup=False)

    def render(self) -> Table:
        """Return a line for each phase, with its duration so far."""
        now = time.monotonic() if self.ended is None else self.ended
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        ends = [began for _, began in self.phases[1:]] + [now]
        for (name, began), end in zip(list(self.phases), ends, strict=False):
            table.add_row(f"  {name}", format_seconds(end - began))
        return table
