"""Where the sweep of a dashboard comes from: its folder here, or the copy of its ledger in an MLflow store."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from search.dashboard.app import Parts
from search.dashboard.findings import Findings
from search.dashboard.live_sweep import LiveSweep
from search.storage.folder import SweepFolder, list_folders
from training.errors import UserError

FETCH_SECONDS = 10.0  # between two looks at a store; the driver copies its ledger there about twice a minute


class Source(Protocol):
    """A sweep that can be served."""

    @property
    def name(self) -> str: ...

    def make_parts(self) -> Parts:
        """Return what the application needs.

        Raises:
            UserError: the sweep cannot be read.
        """


@dataclass(frozen=True)
class FolderSource:
    """A sweep in a storage folder; it may not have begun yet. `files` have own techniques."""

    folder: SweepFolder
    files: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    def make_parts(self) -> Parts:
        """Return what the application needs."""
        return _make_parts(LiveSweep(self.folder), self.files, None, "")


@dataclass(frozen=True)
class StoreSource:
    """A sweep of another machine, which is followed through the MLflow store that both reach."""

    uri: str
    experiment: str
    name: str
    files: Sequence[str] = ()

    def make_parts(self) -> Parts:
        """Fetch the ledger, and go on fetching it in a thread.

        Raises:
            UserError: the store has no such sweep, or its ledger is not there yet.
        """
        folder = SweepFolder(Path(tempfile.mkdtemp(prefix="sweep-dashboard-")) / self.name)
        folder.path.mkdir()
        live = LiveSweep(folder)
        self._fetch(live)
        threading.Thread(target=self._follow, args=(live,), daemon=True).start()
        return _make_parts(live, self.files, self.uri, self.experiment)

    def _fetch(self, live: LiveSweep) -> None:
        from search.tracking.remote import fetch_ledger

        with tempfile.TemporaryDirectory() as place:
            copy = fetch_ledger(self.uri, self.experiment, self.name, Path(place))
            new, ledger = copy.ledger.read_bytes(), live.folder.ledger
            old = ledger.read_bytes() if ledger.exists() else b""
        if new.startswith(old):
            with ledger.open("ab") as file:
                file.write(new[len(old) :])
        else:  # another sweep has this name now
            ledger.unlink()
            ledger.write_bytes(new)
        live.folder = replace(live.folder, known_running=copy.known_running)

    def _follow(self, live: LiveSweep) -> None:
        wait = threading.Event().wait
        while not wait(FETCH_SECONDS):
            try:
                self._fetch(live)
                live.source_problem = ""
            except UserError as error:
                live.source_problem = str(error)


def _make_parts(live: LiveSweep, files: Sequence[str], uri: str | None, experiment: str) -> Parts:
    def carry_out(values: dict) -> str:
        # These modules read recipes from text, which a page that only looks does not need.
        from search.dashboard.actions import carry_out
        from search.followup.requests import Target

        live.refresh()
        while not live.is_read:
            live.refresh()
        return carry_out(Target(live.record, uri, experiment), values)

    return Parts(live, Findings(live.folder, live.count_completed, files), carry_out)


def find_latest(storage: Path) -> SweepFolder:
    """Return the sweep whose ledger was written last: a running one, if there is one.

    Raises:
        UserError: there is no sweep.
    """
    folders = [folder for folder in list_folders(storage) if folder.ledger.is_file()]
    if not folders:
        raise UserError(f"--storage={storage}: there is no sweep. Start one with sweep run, or name another folder.")
    return max(folders, key=lambda folder: folder.ledger.stat().st_mtime)
