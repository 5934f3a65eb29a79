"""Requests to a running sweep: files in its folder, each with the event that the driver appends to the ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ledger.events import REQUESTS, AnyRequest, encode
from ledger.file import Ledger, try_decode
from ledger.folder import SweepFolder
from training.errors import UserError
from training.process.text_files import open_new
from training.process.writable import cannot_write

logger = logging.getLogger("search")


def send_request(folder: SweepFolder, event: AnyRequest) -> None:
    """Leave a request for the driver, which looks for one twice a second."""
    partial = folder.requests / f".{event.request}"
    try:
        folder.requests.mkdir(exist_ok=True)
        with open_new(partial) as file:
            file.write(encode(event))
        partial.rename(folder.requests / f"{time.time_ns()}-{event.request}.json")
    except OSError as error:
        raise cannot_write("--storage", folder.requests, error) from None


def list_requests(folder: SweepFolder) -> Iterator[tuple[Path, AnyRequest | None]]:
    """Return the requests, the oldest first; None in place of the event of a file that cannot be read."""
    for path in sorted(folder.requests.glob("*.json")):
        if path.is_file():
            event = None
            with suppress(UserError):  # it has a recipe with a plugin that is not loaded
                event = try_decode(path.read_bytes())
            yield path, event if isinstance(event, REQUESTS) else None


def receive_requests(folder: SweepFolder) -> Iterator[AnyRequest]:
    """Yield the requests, the oldest first. Each is removed when the next one is asked for, so the ledger must have it."""
    for path, event in list_requests(folder):
        if event is not None:
            yield event
            path.unlink()
        else:  # what cannot be read is never deleted
            path.rename(path.with_suffix(".unreadable"))
            logger.warning(
                "%s is not a request that this driver can read, so it was set aside. For a recipe with a part of a plugin, "
                "the driver must have the plugin: sweep resume NAME --plugin FILE, then sweep add.",
                path,
            )


def ingest(folder: SweepFolder, ledger: Ledger) -> None:
    """Append the requests that came too late for the last driver to the ledger."""
    known = {event.request for event in ledger.events if isinstance(event, REQUESTS)}
    for event in receive_requests(folder):
        if event.request not in known:
            ledger.append(event)
