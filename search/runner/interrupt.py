"""Signals that end a command: Ctrl-C leaves it time, SIGTERM and a closed terminal leave it three seconds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP, its terminal was closed"}
URGENT = (signal.SIGTERM, signal.SIGHUP)
# After SIGTERM the work in progress gets this long to end by itself; then an exception leaves it.
PATIENCE_SECONDS = 0.5
# MLflow gets this long after SIGTERM: SIGKILL may follow three seconds after it.
URGENT_CLOSE_SECONDS = 1.2


class Interrupted(BaseException):
    """A signal ended the command; `way_on` is the sentence that says how to go on.

    Neither an `Exception` nor a `KeyboardInterrupt`: libraries catch those, and then go on or exit by themselves.
    """

    def __init__(self, number: int, way_on: str = "") -> None:
        self.number = number
        self.way_on = way_on
        super().__init__(f"ended by {NAMES.get(signal.Signals(number), number)}. {way_on}".strip())

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it."""
        return 128 + self.number


@dataclass
class Request:
    """What signals asked for so far."""

    number: int | None = None
    is_hurried: bool = False  # SIGTERM, or Ctrl-C twice: there is time for the ledger, and little more
    is_held: bool = False
    timer: threading.Timer | None = None

    def __call__(self) -> bool:
        """Whether the work should end."""
        return self.number is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no signal break into what must be written in one piece."""
        self.cancel_timer()
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False

    def cancel_timer(self) -> None:
        if self.timer:
            self.timer.cancel()

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals. The second signal raises; after SIGTERM the second comes from a timer.

        Raises:
            Interrupted: this is the second.
        """
        again, urgent = self.number is not None, number in URGENT
        self.is_hurried |= again or urgent
        if urgent or self.number not in URGENT:
            self.number = number
        if self.is_held:
            return
        if again:
            raise Interrupted(self.number or number)
        if urgent:
            main = threading.main_thread().ident
            self.timer = threading.Timer(PATIENCE_SECONDS, signal.pthread_kill, (main, number))
            self.timer.daemon = True
            self.timer.start()


@contextmanager
def interruptible() -> Iterator[Request]:
    """Let the work within end by itself: it asks the `Request` now and then whether it should.

    Raises:
        Interrupted: Ctrl-C came a second time, or the work did not end soon after SIGTERM.
    """
    request = Request()
    with _handled(request.receive):
        try:
            yield request
        finally:
            request.cancel_timer()


@contextmanager
def resumable(name: str) -> Iterator[None]:
    """Whatever signal ends the work within, the sweep can go on."""
    try:
        yield
    except Interrupted as end:
        raise Interrupted(end.number, f"Continue with: sweep resume {name}") from None


def listen() -> None:
    """Let signals raise `Interrupted` from now on. Call it again after Ray has started, which takes SIGTERM for itself."""
    for number in _signals():
        signal.signal(number, _raise)


def leave_on_signals(code: int) -> None:
    """Let signals end the process at once, with this exit code."""
    for number in _signals():
        signal.signal(number, lambda *_: os._exit(code))


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def _signals() -> set[signal.Signals]:
    """Not SIGHUP where `nohup` had it ignored."""
    return {number for number in NAMES if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN}


@contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    before: dict[signal.Signals, Handler] = {}
    with suppress(ValueError):  # only the main thread may: elsewhere no signal arrives
        for number in _signals():
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
