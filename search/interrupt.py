"""Ctrl-C as a wish: the first ends cleanly, the second interrupts as ever."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Take the first Ctrl-C as a wish to end cleanly; the second one interrupts as ever."""
    wished = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal wished
        wished = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # not in the main thread: whoever runs it there has a way of their own
        signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: wished
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, before)
