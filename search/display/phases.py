"""Show the phases of a start with their times: redrawn in a terminal, one plain line for each elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from ledger.formatting import format_seconds

if TYPE_CHECKING:
    from rich.console import Console


class Phases:
    """Shows the phases of a command before its first result, inside a `with` block."""

    def __init__(self, console: Console, began: float | None = None) -> None:
        """`began` is the begin of the command, by the monotonic clock, if it did something before."""
        self.console = console
        self.began = time.monotonic() if began is None else began
        name = TextColumn("  {task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        self.progress = Progress(name, TimeElapsedColumn(), console=console, get_time=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_interactive:  # elsewhere it would print an empty line
            self._end()
            self.progress.stop()

    def begin(self, name: str) -> None:
        """End the current phase and begin this one."""
        if self.console.is_interactive:
            self._end()
            self.progress.add_task(name, total=None)
            self.progress.start()
        else:
            self.console.print(f"[{format_seconds(time.monotonic() - self.began)}] {name}", markup=False)

    def _end(self) -> None:
        for task in self.progress.task_ids[-1:]:
            self.progress.stop_task(task)
