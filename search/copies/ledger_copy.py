"""Copy a ledger to a URI while its sweep runs, so that another machine can continue it."""

from __future__ import annotations

import logging
import time
from threading import Event, Thread

from ledger.events import AnyEvent
from ledger.folder import SweepFolder
from search.copies.place import CopyPlace, describe_store_error, send

LEAST_SECONDS = 5.0  # between two copies
SHARE = 10  # a copy that takes long is made less often: at most a tenth of the time is for copies

logger = logging.getLogger("search")


class LedgerCopy:
    """Copies the ledger after each event, in a thread, so that no decision waits for the store."""

    def __init__(self, folder: SweepFolder, place: CopyPlace) -> None:
        """Copy the ledger.

        Raises:
            OSError: the store did not answer, or refused.
        """
        self.folder, self.place = folder, place
        self.problem = ""  # the last copy's
        self._gone: list[tuple[int, str]] = []  # files of trials to delete, when the ledger's copy has their end
        self._changed, self._is_over = Event(), Event()
        if folder.preset.exists():  # for the same command again: a preset measures each machine
            send(place, folder.preset)
        send(place, folder.ledger)
        self._thread = Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def __call__(self, event: AnyEvent) -> None:
        self._changed.set()

    def delete(self, trial: int, name: str) -> None:
        """Delete the copy of a trial's file after the next copy of the ledger, which has the trial's end.

        Until then another machine may have to continue the trial.
        """
        self._gone.append((trial, name))

    def close(self) -> str:
        """Copy the whole ledger, and return the reason if that failed, else an empty text."""
        self._is_over.set()
        self._changed.set()
        self._thread.join()
        self._copy()
        return self.problem

    def _go_on(self) -> None:
        while not self._is_over.is_set():
            self._changed.wait()
            self._changed.clear()
            if self._is_over.is_set():  # looked at after `clear`, which may have taken back what `close` has set
                return
            began = time.monotonic()
            self._copy()
            self._is_over.wait(max(LEAST_SECONDS, SHARE * (time.monotonic() - began)))

    def _copy(self) -> None:
        gone, self._gone = self._gone, []
        try:
            send(self.place, self.folder.ledger)
            for trial, name in gone:
                self.place.child(f"trials/{trial:04d}").delete(name)
            self.problem = ""
        except OSError as error:
            self._gone = gone + self._gone
            if not self.problem:
                logger.warning("%s: the ledger was not copied: %s.", self.place.uri, describe_store_error(error))
            self.problem = describe_store_error(error)
