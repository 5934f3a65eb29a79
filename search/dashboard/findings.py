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
from pathlib import Path
from typing import Any

from search.core.record import SweepRecord
from search.storage.folder import SweepFolder
from training.errors import UserError

REST = 2.0  # pauses between two processes, in their durations: together they take at most a third of a core
LONGEST_SECONDS = 600
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Findings:
    """The latest findings of a sweep; a thread makes new ones when trials have ended since."""

    def __init__(self, folder: SweepFolder, count_ended: Callable[[], int], files: Sequence[str] = ()) -> None:
        """Remember what to look at; `files` have own techniques."""
        self.command = [sys.executable, "-P", "-m", "search.dashboard.findings", str(folder.path), *files]
        self.count_ended = count_ended
        self.values: dict[str, Any] = {"version": 0, "problem": "", "html": "", "effects": []}
        self._seen = 0  # ended trials of the latest findings
        self._next = 0.0
        self._mutex = threading.Lock()

    def describe(self, since: int) -> dict[str, Any]:
        """Return the findings if they are newer than the version `since`, and begin new ones where it is time."""
        ended = self.count_ended()
        if ended != self._seen and time.monotonic() >= self._next and self._mutex.acquire(blocking=False):
            threading.Thread(target=self._renew, args=(ended,), daemon=True).start()
        values = self.values
        return values if values["version"] > since else {"version": values["version"]}

    def _renew(self, ended: int) -> None:
        began = time.monotonic()
        try:
            done = subprocess.run(
                self.command, capture_output=True, text=True, timeout=LONGEST_SECONDS, env=os.environ | ONE_THREAD
            )
            found = json.loads(done.stdout) if done.returncode == 0 else {"problem": _last_line(done.stderr)}
        except subprocess.TimeoutExpired:
            found = {"problem": f"The findings take more than {LONGEST_SECONDS} seconds, so they are not shown here."}
        finally:
            self._seen = ended
            self._next = time.monotonic() + REST * (time.monotonic() - began)
            self._mutex.release()
        self.values = {"html": "", "effects": [], "problem": "", **found, "version": self.values["version"] + 1}


def _last_line(text: str) -> str:
    return f"The findings could not be made: {text.strip().splitlines()[-1] if text.strip() else 'no reason is known'}"


def make_findings(folder: SweepFolder) -> dict[str, Any]:
    """Return the HTML text of the findings with the effects for their figure; or a sentence if there is nothing to find."""
    from analysis.report.sweep_report import find, list_known_effects, render_live
    from search.dashboard.ledger_tables import make_tables

    try:
        found = find(make_tables(SweepRecord.open(folder)))
    except UserError as error:
        return {"problem": str(error)}
    return {"html": render_live(found), "effects": [asdict(row) for row in list_known_effects(found)]}


if __name__ == "__main__":
    os.nice(10)
    from training.own import load

    path, *own = sys.argv[1:]
    load(own)
    print(json.dumps(make_findings(SweepFolder(Path(path)))))
