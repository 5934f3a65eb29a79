"""Images that are away for longer than a trial waits: no trial starts until they are back, then all go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from training.contract.specs import Data
from training.data.files.away import find_places
from training.errors import UserError

LOOK_SECONDS = 5.0
LEAST_SECONDS = 60.0  # a part of the images may be away, which only the trials see
MOST_SECONDS = 600.0  # then the trials look: this machine may not have the images at all


class ImagesAway:
    """Holds trials back while the images are away."""

    def __init__(self, say: Callable[[str], object] = lambda line: None) -> None:
        self._say = say
        self._data: Data | None = None  # those that are away
        self._began = self._next_look = 0.0
        self._is_seen = self._was_missed = False  # whether this machine sees their folder, and has missed it before

    def begin(self, data: Data, reason: str) -> None:
        """Hold trials back, because one ended for this reason."""
        if self._data is None:
            self._say(
                f"{reason} No trial starts until the images are back, however long that takes. Ctrl-C ends the sweep, and "
                "sweep resume continues it."
            )
            self._began, self._is_seen, self._was_missed = time.monotonic(), False, False
        self._data = data

    def holds(self) -> bool:
        """Return whether the images are still away. It never blocks, as a look at a disk that is away may do."""
        if self._data is None:
            return False
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            threading.Thread(target=self._look, args=(self._data,), daemon=True).start()
        least = 0.0 if self._was_missed else LEAST_SECONDS
        if now - self._began >= (least if self._is_seen else MOST_SECONDS):
            self._data = None
            self._say("The trials go on where they were." if self._is_seen else "The trials look for the images again.")
        return self._data is not None

    def _look(self, data: Data) -> None:
        try:
            find_places(data)
        except UserError:
            self._is_seen, self._was_missed = False, True
        else:
            self._is_seen = True
