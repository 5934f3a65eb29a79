"""What the runner tells of a sweep: it prints nothing itself. `search.display.sweep_display` shows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from search.core.controller import Controller


class Display(Protocol):
    """Hears of a sweep from its start to its end."""

    def start(self, began: float | None = None) -> AbstractContextManager[None]:
        """The start lasts as long as the `with` block. Time counts from `began`, by the monotonic clock, if not from now."""

    def phase(self, name: str) -> None:
        """A part of the start begins."""

    def line(self, text: str) -> None:
        """A sentence for the user."""

    def training(
        self, controller: Controller, slots: Callable[[], int], seconds_left: Callable[[], float] | None, began: float
    ) -> AbstractContextManager[None]:
        """Trials run as long as the `with` block, at most `slots` at a time.

        `seconds_left` is what is left of a time budget, and `began` when the command did, by the monotonic clock.
        """
