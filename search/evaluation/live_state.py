"""What a running sweep does now, from its ledger and the logs of its trials, for the page that follows it."""

from __future__ import annotations

import math
import time
from pathlib import Path

from analysis.report.live import Live, Worker
from ledger.events import DriverStarted, EpochReported, TrialEnded, TrialLost, TrialResumed, TrialStarted
from ledger.formatting import format_score, format_seconds, mask_secrets
from ledger.recipe_text import format_counts
from ledger.record import SweepRecord
from ledger.trials import UNFINISHED, Trials
from search.core.asha import make_asha
from search.core.pace import describe_left
from training.process.text_files import refuse_irregular

LOG_BYTES = 2000  # of the end of each log: those of 1,000 trials make the page 0.2 MB larger


def describe_live(record: SweepRecord) -> Live:
    """Return what the ledger says now about state, progress, workers and rungs, and the end of each trial's log."""
    trials, now = record.trials, time.time()
    drivers = [place for place, event in enumerate(record.events) if isinstance(event, DriverStarted)]
    since = record.events[drivers[-1] :] if drivers else []
    driver = record.driver if since else None
    budget = record.recorded_settings.time_budget_seconds
    # A resume may have another time budget, which the ledger does not have.
    budget_left = since[0].time + budget - now if len(drivers) == 1 and budget else None
    left = describe_left(list(trials), record.budget, driver.slots if driver else 1, budget_left, now)
    last = record.events[-1].time if record.events else now
    share = f"{driver.threads} CPU thread{'s' * (driver.threads != 1)}" if driver else ""
    return Live(
        name=record.name,
        state="Running" if driver else "The first trial is being prepared",
        done=sum(trial.state not in UNFINISHED for trial in trials),
        budget=record.budget,
        counts=format_counts(trials) or "none has started",
        elapsed=format_seconds(trials.elapsed_seconds + (now - last if driver else 0.0)),
        time_left=left or "the time left is not known yet",
        machine=f"{share}{f' and {driver.gpus:g} GPU' if driver.gpus else ''} for each trial, driver on {driver.host}"
        if driver
        else "",
        workers=_list_workers(since, trials, driver.slots if driver else 0),
        rungs=_list_rungs(record),
        logs={} if record.folder.is_copy else _read_logs(record),
    )


def _list_workers(since: list, trials: Trials, slots: int) -> list[Worker]:
    """Return a worker for each place. A trial keeps its place, and a new one gets the first that is free."""
    places: dict[int, int] = {}
    for event in since:
        if isinstance(event, TrialStarted | TrialResumed):
            places[event.trial] = min(set(range(len(places) + 1)) - set(places.values()))
        elif isinstance(event, TrialEnded | TrialLost):
            places.pop(event.trial, None)
    workers = [Worker()] * max([slots, *(place + 1 for place in places.values())])
    for number, place in places.items():
        trial = trials.by_number[number]
        workers[place] = Worker(trial.name, trial.epoch, trial.epochs, format_score(trials.metric, trial.score))
    return workers


def _list_rungs(record: SweepRecord) -> list[tuple[str, int, str]]:
    asha, trials = make_asha(record.space), record.trials
    if asha is None:
        return []
    for event in record.events:
        if isinstance(event, TrialStarted):
            trial = trials.by_number[event.trial]
            asha.start(trial.number, trial.epochs, original=trials.original_of(trial))
        elif isinstance(event, EpochReported):
            asha.arrive(event.trial, event.epoch, trials.sign * event.score)
        elif isinstance(event, TrialEnded):
            asha.end(event.trial, event.state)
    return [
        (label, count, "" if cut is None or not math.isfinite(cut) else format_score(trials.metric, trials.sign * cut))
        for label, count, cut in asha.rungs()
        if count
    ]


def _read_logs(record: SweepRecord) -> dict[str, str]:
    logs = {trial.name: read_end(record.folder.trial(trial.number) / "log.txt") for trial in record.trials}
    return {name: text for name, text in logs.items() if text}


def read_end(file: Path) -> str:
    """Return the end of a log with masked secrets; empty if there is none."""
    try:
        refuse_irregular(file)
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - LOG_BYTES))
            text = opened.read().decode(errors="replace")
    except OSError:
        return ""
    return mask_secrets(text if size <= LOG_BYTES else text.partition("\n")[2])
