"""Show a sweep in a terminal, a notebook or a file: the phases of its start, then its trials, and lines that stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from ledger.formatting import format_seconds
from search.display.trials_display import TrialsDisplay

if TYPE_CHECKING:
    from rich.console import Console

    from search.core.controller import Controller


class SweepDisplay:
    """The `Display` of the runner: it prints to a console. In a terminal what changes is redrawn in place."""

    def __init__(self, console: Console, is_live: bool = True) -> None:
        """Without `is_live` nothing is redrawn in a terminal either, where a debugger asks."""
        self.console, self.is_live = console, is_live and console.is_interactive
        self.phases: Progress | None = None
        self.trials: TrialsDisplay | None = None
        self.began = 0.0

    @contextmanager
    def start(self, began: float | None = None) -> Iterator[None]:
        """Show phases inside the `with` block. `began` is the begin of the command, by the monotonic clock, if not now."""
        self.began = time.monotonic() if began is None else began
        try:
            yield
        finally:
            if self.phases:
                self.phases.stop_task(self.phases.task_ids[-1])
                self.phases.stop()
                self.phases = None

    def phase(self, name: str) -> None:
        """End the current phase of the start, and begin this one."""
        if not self.is_live:
            self.line(f"[{format_seconds(time.monotonic() - self.began)}] {name}")
            return
        if self.phases:
            self.phases.stop_task(self.phases.task_ids[-1])
        else:
            label = TextColumn(
                "  {task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
            )
            self.phases = Progress(label, TimeElapsedColumn(), console=self.console, get_time=time.monotonic)
        self.phases.add_task(name, total=None)
        self.phases.start()

    def line(self, text: str) -> None:
        """Print a line that stays. In a terminal it stands above what is redrawn."""
        if self.trials:
            self.trials.say(text)
        else:
            self.console.print(text, markup=False)

    @contextmanager
    def training(
        self, controller: Controller, slots: Callable[[], int], seconds_left: Callable[[], float] | None, began: float
    ) -> Iterator[None]:
        """Show the controller's trials inside the `with` block; see `Display.training`."""
        self.trials = TrialsDisplay(controller, self.console, slots, seconds_left, began, self.is_live)
        controller.subscribe(self.trials)
        try:
            with self.trials:
                yield
        finally:
            self.trials = None
