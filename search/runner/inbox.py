"""Take the requests of users into a running sweep, and record its run in MLflow."""

from __future__ import annotations

import time
from collections.abc import Callable

from ledger.events import RunOpened
from ledger.folder import SweepFolder
from ledger.requests import receive_requests
from search.core.controller import Controller

LOOK_SECONDS = 0.5


class Inbox:
    """Gives each request to the controller once. A request is removed only after the ledger has it."""

    def __init__(self, folder: SweepFolder, controller: Controller, own_run: Callable[[], RunOpened | None]) -> None:
        """`own_run` returns the sweep's own run in MLflow as soon as it exists."""
        self.folder = folder
        self.controller = controller
        self.own_run = own_run
        self.next_look = 0.0
        self.has_run = False  # whether the ledger has the id of the sweep's own run

    def collect(self, at_once: bool = False) -> None:
        """Take in the new requests, at most twice a second unless `at_once` is set.

        Raises:
            OSError: the ledger cannot be written.
        """
        if not at_once and time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + LOOK_SECONDS
        for event in receive_requests(self.folder):
            self.controller.accept(event)
        if not self.has_run and (run := self.own_run()):
            self.controller.record(run)
            self.has_run = True
