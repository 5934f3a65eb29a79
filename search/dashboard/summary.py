"""What the page shows above the trials: state, best trial, workers, time left and rungs."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import time
from collections import Counter
from typing import Any

import psutil

from analysis.reading.store import SERVERS
from ledger.events import (
    AnyEvent,
    DriverStarted,
    Noted,
    RunOpened,
    SettingsChanged,
    TrialEnded,
    TrialLost,
    TrialResumed,
    TrialStarted,
)
from ledger.formatting import MASK, format_score, format_seconds, mask_secrets
from ledger.record import SweepRecord
from ledger.settings import Settings
from ledger.trials import UNFINISHED, Trial, Trials
from search.core.asha import Asha
from search.display.time_left import Pace

LOOK_SECONDS = 4.0
QUERY = ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


class LiveSummary:
    """Folds the events that concern the sweep as a whole."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.trials_asked = 0
        self.drivers = 0
        self.driver: DriverStarted | None = None
        self.pace = Pace(lambda: 1)
        self.places: dict[int, int] = {}  # the worker of each running trial, from 0
        self.last_time = 0.0
        self.notes: list[str] = []
        self.machine = Machine()
        self.run: RunOpened | None = None

    def begin(self, record: SweepRecord) -> None:
        """Take what the first event of the sweep describes."""
        self.settings = record.header.settings
        self.trials_asked = record.space.search.trials

    def fold(self, event: AnyEvent) -> None:
        """Take in one event. Events must come in the ledger's order."""
        self.last_time = event.time
        if isinstance(event, DriverStarted):
            self._fold_driver(event)
        elif isinstance(event, SettingsChanged):
            self.settings = event.settings
        elif isinstance(event, RunOpened):
            self.run = event
        elif isinstance(event, Noted):
            self.notes.append(event.text)
        elif isinstance(event, TrialStarted | TrialResumed):
            free = set(range(len(self.places) + 1)) - set(self.places.values())
            self.places[event.trial] = min(free)
        elif isinstance(event, TrialEnded | TrialLost):
            self.places.pop(event.trial, None)
        if event.event in ("start", "resume", "report"):
            self.pace.add(event)

    def _fold_driver(self, event: DriverStarted) -> None:
        # A resume may have another time budget, which the ledger does not have.
        budget = self.settings.time_budget_seconds if self.drivers == 0 else None
        self.driver, self.drivers, self.places = event, self.drivers + 1, {}
        self.pace = Pace(lambda: event.slots, (lambda: event.time + budget - time.time()) if budget else None)

    def describe(self, trials: Trials, best: Trial | None, asha: Asha | None, state: str) -> dict[str, Any]:
        """Return plain values for the page; `state` is that of the sweep."""
        now, counts = time.time(), Counter(trial.state for trial in trials)
        is_running = state == "running"
        since = now - self.last_time if is_running and self.driver else 0.0
        return {
            "state": state,
            "is_paused": is_running and trials.is_paused,
            "done": len(trials) - sum(counts[name] for name in UNFINISHED),
            "budget": self.trials_asked + trials.extra,
            "counts": counts,
            "elapsed": format_seconds(trials.elapsed_seconds + since),
            "time_left": self._describe_time_left(trials, now) if is_running else None,
            "best": best
            and {"trial": best.number, "score": format_score(trials.metric, best.score, best.standard_error)},
            "workers": self._describe_workers() if is_running else [],
            "machine": self._describe_machine() if is_running else "",
            "rungs": self._describe_rungs(trials, asha),
            "notes": self.notes,
            "mlflow": _find_page(mask_secrets(self.settings.tracking_uri), self.run),
            "ray": self.driver.dashboard if is_running and self.driver else "",
        }

    def _describe_time_left(self, trials: Trials, now: float) -> dict[str, str]:
        planned = trials.plan.seconds if trials.plan else None
        text, basis = self.pace.describe(list(trials), self.trials_asked + trials.extra, now, planned)
        return {"text": text or "time left is not known yet", "basis": basis or "no trial has ended"}

    def _describe_workers(self) -> list[int | None]:
        """Return the trial of each worker; None for one that is free."""
        slots = max(self.driver.slots if self.driver else 0, *(place + 1 for place in self.places.values()), 0)
        by_place = {place: trial for trial, place in self.places.items()}
        return [by_place.get(place) for place in range(slots)]

    def _describe_machine(self) -> str:
        if self.driver is None:
            return ""
        threads, gpus = self.driver.threads, self.driver.gpus
        share = f"{threads} CPU thread{'s' * (threads != 1)}" + (f" and {gpus:g} GPU" if gpus else "")
        words = [f"{share} for each trial", f"driver on {self.driver.host}"] if self.driver.host else [share]
        if self.driver.host == socket.gethostname():
            words += self.machine.describe()
        return " · ".join(words)

    def _describe_rungs(self, trials: Trials, asha: Asha | None) -> list[dict[str, Any]]:
        lines = []
        for label, count, cutoff in asha.rungs() if asha else []:
            passing = (
                "" if cutoff is None or not math.isfinite(cutoff) else format_score(trials.metric, trials.sign * cutoff)
            )
            lines.append({"label": label, "reached": count, "passing": passing})
        return lines


def _find_page(uri: str, run: RunOpened | None) -> str:
    """Return the address of a run in the web page of an MLflow server; empty for other stores, or with a password."""
    if run is None or not uri.startswith(SERVERS) or MASK in uri:
        return ""
    return f"{uri.rstrip('/')}/#/experiments/{run.experiment}/runs/{run.run}"


class Machine:
    """Measures at most once in some seconds; between two looks it returns the last texts."""

    def __init__(self) -> None:
        self.next_look = time.monotonic() + LOOK_SECONDS / 4  # a shorter time says nothing about the CPUs
        self.texts: list[str] = []
        psutil.cpu_percent()  # the next call measures from here

    def describe(self) -> list[str]:
        """Return texts such as `CPUs 87 % busy`."""
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_SECONDS
            memory = psutil.virtual_memory()
            self.texts = [
                f"CPUs {psutil.cpu_percent():.0f} % busy",
                f"memory {memory.percent:.0f} % used",
                *_describe_gpus(),
            ]
        return self.texts


def _describe_gpus() -> list[str]:
    if (tool := shutil.which("nvidia-smi")) is None:
        return []
    try:
        done = subprocess.run([tool, *QUERY], capture_output=True, text=True, timeout=2, check=True)
        rows = [[float(cell) for cell in line.split(",")] for line in done.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError):  # the tool is there, but its driver is not
        return []
    return [
        f"GPU {n}: {busy:.0f} % busy, {used / total:.0%} of its memory" for n, (busy, used, total) in enumerate(rows)
    ]
