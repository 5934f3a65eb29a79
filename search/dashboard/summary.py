"""What the page shows above the trials: state, best trial, workers, time left and rungs."""

from __future__ import annotations

import math
import socket
import time
from collections import Counter
from typing import Any

from analysis.formatting import format_score, format_seconds
from search.core.asha import Asha
from search.core.record import SweepRecord
from search.core.trials import UNFINISHED, Trial, Trials
from search.dashboard.machine import Machine
from search.dashboard.run_link import RunLink
from search.display.time_left import Pace
from search.storage.events import (
    AnyEvent,
    DriverStarted,
    Noted,
    SettingsChanged,
    TrialEnded,
    TrialLost,
    TrialResumed,
    TrialStarted,
)
from search.storage.settings import Settings


class Summary:
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
        self.link: RunLink | None = None

    def begin(self, record: SweepRecord) -> None:
        """Take what the first event of the sweep describes."""
        self.settings = record.header.settings
        self.link = RunLink(self.settings.tracking_uri, self.settings.experiment, record.header.id)
        self.trials_asked = record.space.search.trials

    def fold(self, event: AnyEvent) -> None:
        """Take in one event. Events must come in the ledger's order."""
        self.last_time = event.time
        if isinstance(event, DriverStarted):
            self._fold_driver(event)
        elif isinstance(event, SettingsChanged):
            self.settings = event.settings
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
        self.pace = Pace(lambda: event.slots, event.time + budget if budget else None)

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
            "mlflow": self.link.address if self.link else "",
            "ray": self.driver.dashboard if is_running and self.driver else "",
        }

    def _describe_time_left(self, trials: Trials, now: float) -> dict[str, str]:
        planned = trials.plan.seconds if trials.plan else None
        text, basis = self.pace.explain(list(trials), self.trials_asked + trials.extra, now, planned)
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
