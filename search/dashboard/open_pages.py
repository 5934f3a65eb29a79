"""The pages that are open in browsers, known from the questions that each of them asks."""

from __future__ import annotations

import time

OPEN_SECONDS = 70.0  # a browser lets a hidden page ask once a minute


class OpenPages:
    """Each page has a number that it chose itself; it is open until it leaves or asks nothing any more."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}

    def note(self, page: str) -> None:
        """Remember that a page has asked now; an empty name is no page."""
        if page:
            self.asked[page] = time.monotonic()

    def leave(self, page: str) -> None:
        """Forget a page that needs nothing any more."""
        self.asked.pop(page, None)

    def count(self) -> int:
        """Return the number of open pages."""
        now = time.monotonic()
        return sum(now - asked < OPEN_SECONDS for asked in list(self.asked.values()))
