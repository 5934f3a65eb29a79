"""Make the findings of the report while the sweep runs: in a process of its own, and not more than it is worth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from training.errors import UserError

REST = 2.0  # pauses between two processes, in their durations: together they take at most a third of a core
LONGEST_SECONDS = 600
EMPTY: dict[str, Any] = {"problem": "", "lead": "", "html": "", "effects": []}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class LiveFindings:
    """The latest findings of a sweep; a thread makes new ones when trials have ended since."""

    def __init__(self, folder: SweepFolder, count_ended: Callable[[], int], files: Sequence[str] = ()) -> None:
        """Remember what to look at; `files` have own techniques."""
        self.command = [sys.executable, "-P", "-m", "search.dashboard.findings", str(folder.path), *files]
        self.count_ended = count_ended
        self.values: dict[str, Any] = {**EMPTY, "version": 0}
        self.is_last = False  # whether no trial will end any more, so that nothing is gained by a pause
        self._seen = (0, False)  # the ended trials of the latest findings, and whether these were the last
        self._next = 0.0
        self._mutex = threading.Lock()

    def describe(self, since: int) -> dict[str, Any]:
        """Return the findings if they are newer than the version `since`, and begin new ones where it is time."""
        wanted = (self.count_ended(), self.is_last)
        is_time = self.is_last or time.monotonic() >= self._next
        if wanted != self._seen and is_time and self._mutex.acquire(blocking=False):
            threading.Thread(target=self._renew, args=(wanted,), daemon=True).start()
        values = self.values
        return values if values["version"] > since else {"version": values["version"]}

    @property
    def are_complete(self) -> bool:
        """Whether these are the last findings."""
        return self._seen == (self.count_ended(), True)

    def _renew(self, wanted: tuple[int, bool]) -> None:
        began = time.monotonic()
        try:
            findings = self._compute()
            self.values = {**EMPTY, **findings, "version": self.values["version"] + 1}
        finally:
            self._seen = wanted
            self._next = time.monotonic() + REST * (time.monotonic() - began)
            self._mutex.release()

    def _compute(self) -> dict[str, Any]:
        try:
            done = subprocess.run(
                self.command,
                stdin=_open_pipe(),
                capture_output=True,
                text=True,
                timeout=LONGEST_SECONDS,
                env=os.environ | ONE_THREAD,
            )
        except subprocess.TimeoutExpired:
            return {"problem": f"The findings take more than {LONGEST_SECONDS} seconds, so they are not shown here."}
        if done.returncode == 0:
            return json.loads(done.stdout)
        *_, reason = done.stderr.strip().splitlines() or ["no reason is known"]
        return {"problem": f"The findings could not be made: {reason}"}


@cache
def _open_pipe() -> int:
    """Return the reading end of a pipe. This process holds the other end, which closes however it ends."""
    return os.pipe()[0]


def _end_with_server() -> None:
    os.read(0, 1)
    os._exit(1)


def make_findings(folder: SweepFolder) -> dict[str, Any]:
    """Return the HTML texts of the findings with the effects for their figure; or a sentence if there is nothing to find."""
    from analysis.report.findings import find
    from analysis.report.sweep_report import list_known_effects, render_live
    from ledger.tables import make_tables

    try:
        findings = find(make_tables(SweepRecord.open(folder, only_shown=True)))
    except UserError as error:
        return {"problem": str(error)}
    lead, html = render_live(findings)
    return {"lead": lead, "html": html, "effects": [asdict(row) for row in list_known_effects(findings)]}


if __name__ == "__main__":
    os.nice(10)
    threading.Thread(target=_end_with_server, daemon=True).start()
    from training.plugins import load

    path, *files = sys.argv[1:]
    load(files)
    print(json.dumps(make_findings(SweepFolder(Path(path)))))
