"""The dashboard of a sweep of another machine: its ledger is fetched again and again from the MLflow store that both reach."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.reading.remote import fetch_ledger
from ledger.folder import SweepFolder
from search.dashboard.live_sweep import LiveSweep
from training.errors import UserError

FETCH_SECONDS = 10.0  # between two looks at a store; the driver copies its ledger there about twice a minute


def follow_store(uri: str, name: str, files: Sequence[str] = ()) -> LiveSweep:
    """Fetch the ledger of a sweep, and go on fetching it in a thread; `files` have own techniques."""
    folder = SweepFolder(Path(tempfile.mkdtemp(prefix="sweep-dashboard-")) / name, known_running=False)
    folder.path.mkdir()
    live = LiveSweep(folder, files, uri)
    fetch(live)
    threading.Thread(target=_go_on, args=(live,), daemon=True).start()
    return live


def fetch(live: LiveSweep) -> None:
    """Append what is new in the store to the copy of the ledger."""
    assert live.uri is not None
    with tempfile.TemporaryDirectory() as place:
        copy = fetch_ledger(live.uri, live.folder.name, Path(place))
        new, ledger = copy.ledger.read_bytes(), live.folder.ledger
        old = ledger.read_bytes() if ledger.exists() else b""
    if new.startswith(old):
        with ledger.open("ab") as file:
            file.write(new[len(old) :])
    else:  # another sweep has this name now
        ledger.unlink()
        ledger.write_bytes(new)
    live.folder = replace(live.folder, known_running=copy.known_running)


def _go_on(live: LiveSweep) -> None:
    wait = threading.Event().wait
    while not wait(FETCH_SECONDS):
        try:
            fetch(live)
            live.source_problem = ""
        except UserError as error:
            live.source_problem = str(error)
