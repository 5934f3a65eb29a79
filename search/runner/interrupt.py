"""Signals that end a command. After Ctrl-C it may take its time; after SIGTERM or a closed terminal, three seconds."""

from __future__ import annotations

import math
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP, its terminal was closed"}
URGENT = (signal.SIGTERM, signal.SIGHUP)
# After SIGTERM the current work has this time to end by itself; then an exception ends it.
PATIENCE_SECONDS = 0.5
# Time for MLflow after SIGTERM, because SIGKILL may follow three seconds later.
URGENT_CLOSE_SECONDS = 1.2
# Time for the clean-up of libraries after SIGTERM. Ray waits a minute for its servers if they got the signal too.
CLEAN_UP_SECONDS = 5.0


class Interrupted(BaseException):
    """A signal ended the command; `hint` is a sentence with the command that continues.

    This is neither an `Exception` nor a `KeyboardInterrupt`, because libraries catch those and continue or exit.
    """

    def __init__(self, number: int, hint: str = "") -> None:
        self.number = number
        self.hint = hint
        super().__init__(f"ended by {NAMES.get(signal.Signals(number), number)}. {hint}".strip())

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal, as in shells."""
        return 128 + self.number


@dataclass
class StopRequest:
    """The signals received so far."""

    number: int | None = None
    is_hurried: bool = False  # True after SIGTERM or a second Ctrl-C: there is hardly time for more than the ledger
    is_held: bool = False
    timer: threading.Timer | None = None

    def __call__(self) -> bool:
        """Whether the work should end."""
        return self.number is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals during a write that must not be interrupted."""
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
            Interrupted: this is the second signal.
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
            self.timer = _send_again(number)


@contextmanager
def interruptible() -> Iterator[StopRequest]:
    """Let the work in the `with` block end by itself: it must call the `StopRequest` regularly, and end when that is true.

    Raises:
        Interrupted: after a second Ctrl-C, or if the work did not end soon after SIGTERM.
    """
    request = StopRequest()
    before: dict[signal.Signals, Handler] = {}
    with suppress(ValueError):  # only the main thread can set handlers, and only it receives signals
        for number in _signals():
            before[number] = signal.signal(number, request.receive)
    try:
        yield request
    finally:
        request.cancel_timer()
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def resumable(hint: str) -> Iterator[None]:
    """Add a sentence to an `Interrupted` from the `with` block, with the command that continues."""
    try:
        yield
    except Interrupted as end:
        raise Interrupted(end.number, hint) from None


def hint_resume(called: str, budget: float | None) -> str:
    """Return the sentence with the command that continues a sweep, for as many seconds as it had."""
    limit = f" --time-budget {math.ceil(budget)}s" if budget else ""
    return f"Continue with: sweep resume {called}{limit}"


@contextmanager
def until_ctrl_c() -> Iterator[None]:
    """Leave the `with` block at Ctrl-C, as at its end."""
    try:
        yield
    except Interrupted as end:
        if end.number != signal.SIGINT:
            raise


def listen() -> None:
    """Let signals raise `Interrupted` from now on."""
    for number in _signals():
        signal.signal(number, _raise)


def leave_on_signals(code: int) -> None:
    """Let a signal end the process at once with this exit code. If the code is that of SIGTERM or SIGHUP, time does too."""
    for timer in _checks:
        timer.cancel()
    for number in _signals():
        signal.signal(number, lambda *_: os._exit(code))
    if code - 128 in URGENT:
        timer = threading.Timer(CLEAN_UP_SECONDS, os._exit, [code])
        timer.daemon = True
        timer.start()


_checks: list[threading.Timer] = []


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise `Interrupted`, and again if nobody got it after SIGTERM or SIGHUP.

    Python drops what is raised in a callback of a weak reference. Every import has such callbacks, and some libraries
    catch everything while they are imported. The exception lives as long as it is on its way.
    """
    end = Interrupted(number)
    try:
        if number in URGENT:
            _checks[:] = [_send_again(number, weakref.ref(end))]
        raise end
    finally:
        del end  # this frame is in its traceback


def _send_again(number: int, unless: Callable[[], object] = lambda: None) -> threading.Timer:
    """Send a signal to the main thread once more, soon, unless there is an object, or another handler by then."""

    def send() -> None:
        if unless() is None and signal.getsignal(number) is handler:
            signal.pthread_kill(main, number)

    main, handler = threading.main_thread().ident or 0, signal.getsignal(number)
    timer = threading.Timer(PATIENCE_SECONDS, send)
    timer.daemon = True
    timer.start()
    return timer


def _signals() -> set[signal.Signals]:
    return {number for number in NAMES if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN}
