"""What the dashboard knows of a sweep, folded event by event; each change has a version."""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Sequence

import psutil

from analysis.reading.store import SERVERS
from ledger.events import (
    AnyEvent,
    DriverStarted,
    EpochReported,
    Noted,
    RunOpened,
    SettingsChanged,
    SweepStarted,
    TrialEnded,
    TrialLost,
    TrialResumed,
    TrialStarted,
)
from ledger.folder import SweepFolder
from ledger.formatting import MASK, format_score, format_seconds, mask_secrets
from ledger.record import SweepRecord
from ledger.settings import Settings
from ledger.trials import UNFINISHED, Trial, Trials
from search.core.asha import Asha, make_asha
from search.dashboard.trial_rows import TrialRows
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

    def describe(self, trials: Trials, best: Trial | None, asha: Asha | None, state: str) -> dict[str, object]:
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
        text, basis = self.pace.describe(list(trials), self.trials_asked + trials.extra, now)
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

    def _describe_rungs(self, trials: Trials, asha: Asha | None) -> list[dict[str, object]]:
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
        f"GPU {n}: {busy:.0f} % busy, {100 * used / total:.0f} % of its memory"
        for n, (busy, used, total) in enumerate(rows)
    ]


class LiveState:
    """The trials with their rungs, the best of them, and the version at which each changed."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self.events: list[AnyEvent] = []
        self.version = 0
        self.rows: TrialRows | None = None  # None until the ledger describes the sweep
        self.trials = Trials("")
        self.asha: Asha | None = None
        self.summary = LiveSummary()
        self.best: Trial | None = None
        self.baseline: Trial | None = None  # that with which recipes are compared
        self.stops: Counter[int] = Counter()  # trials that were stopped, by epoch
        self.changed: dict[int, int] = {}  # version at which a trial changed last
        self.started: dict[int, int] = {}  # version at which it started

    def add(self, events: Sequence[AnyEvent]) -> None:
        """Take in new events, in the order of the ledger."""
        self.version += bool(events)
        for event in events:
            if isinstance(event, SweepStarted):
                self._begin(event)
            self.trials.fold(event)
            self.summary.fold(event)
            if (trial := self.trials.by_number.get(getattr(event, "trial", -1))) is not None:
                self._add_to_trial(event, trial)
        self.events += events

    def touch_running(self) -> None:
        """Give the running trials a new version, because their shown state is another one."""
        self.version += 1
        self.changed |= {trial.number: self.version for trial in self.trials if trial.state == "running"}

    def _begin(self, event: SweepStarted) -> None:
        record = SweepRecord(self.folder, [event])
        self.trials = Trials(record.space.search.metric)
        self.rows = TrialRows(record.space)
        self.asha = make_asha(record.space)
        self.summary.begin(record)

    def _add_to_trial(self, event: AnyEvent, trial: Trial) -> None:
        self.changed[trial.number] = self.version
        if isinstance(event, TrialStarted):
            self.started[trial.number] = self.version
            if self.asha:
                self.asha.start(trial.number, trial.epochs, original=self.trials.original_of(trial))
        elif isinstance(event, EpochReported) and self.asha:
            self.asha.arrive(trial.number, event.epoch, self.trials.sign * event.score)
        elif isinstance(event, TrialEnded):
            self.stops[trial.epoch] += event.state == "stopped"
            if self.asha:
                self.asha.end(trial.number, event.state)
            if event.state == "completed" and self._is_better(trial, self.best):
                self.best = trial
        if trial.origin == "baseline" and self._is_better(trial, self.baseline):
            self.baseline = trial

    def _is_better(self, trial: Trial, other: Trial | None) -> bool:
        """Return whether a trial comes before another one in `Trials.ranked`; one without a score comes last."""
        return other is None or self._rank(trial) < self._rank(other)

    def _rank(self, trial: Trial) -> tuple[bool, float, int]:
        score = math.inf if trial.score is None else -self.trials.sign * trial.score
        return trial.state != "completed", score, trial.number
