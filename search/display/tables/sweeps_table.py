"""Sweeps as a table: those of a storage folder, or those of an MLflow store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from ledger.folder import SweepFolder
from ledger.formatting import format_score, plural
from ledger.record import SweepRecord
from ledger.trials import UNFINISHED
from search.display.recipe_text import cut
from search.display.tables.columns import Column, Columns
from training.errors import UserError

if TYPE_CHECKING:
    from analysis.reading.remote import RemoteSweep

BEST = "best_val_"  # begins the name of the metric in MLflow with the best score
COUNT = "trials_"  # begins the names of the metrics with the number of trials in a state
NOTE = 40  # characters of the notes in a row


@dataclass(frozen=True)
class SweepRow:
    """One row of `sweep list`. `started` is in seconds since 1970."""

    name: str
    state: str
    done: int
    total: int
    metric: str
    score: float | None
    standard_error: float | None
    started: float
    folder: Path
    notes: str = ""


@dataclass(frozen=True)
class RemoteRow:
    """One row of `sweep list --from`. `started` is in seconds since 1970."""

    name: str
    state: str
    done: int
    metric: str
    score: float | None
    started: float
    owner: str
    tags: str


SWEEP = [
    Column("name"),
    Column("state"),
    Column("trials", right=True),
    Column("best score", right=True),
    Column("metric", rank=2),
    Column("started", rank=1),
]
SWEEPS = [*SWEEP, Column("notes", rank=3), Column("folder", rank=4)]
REMOTE_SWEEPS = [*SWEEP, Column("owner"), Column("tags")]


def sweeps_table(rows: Sequence[SweepRow]) -> RenderableType:
    """Return the table of the sweeps, in the given order."""
    cells = [
        [*_sweep_cells(row, f"{row.done}/{row.total}", row.standard_error), cut(row.notes, NOTE), str(row.folder)]
        for row in rows
    ]
    return Columns(SWEEPS, cells) if cells else Text("No sweeps here yet.")


def remote_table(rows: Sequence[RemoteRow]) -> RenderableType:
    """Return the table of the sweeps in an MLflow store, in the given order."""
    cells = [[*_sweep_cells(row, str(row.done)), row.owner, row.tags] for row in rows]
    return Columns(REMOTE_SWEEPS, cells) if cells else Text("No such sweeps there.")


def _sweep_cells(row: SweepRow | RemoteRow, trials: str, error: float | None = None) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started))
    score = format_score(row.metric, row.score, error) if row.metric else ""
    return [row.name, row.state, trials, score, row.metric, started]


def describe_sweeps(folders: Iterable[SweepFolder]) -> tuple[list[SweepRow], list[str]]:
    """Return a row for each sweep, and a sentence for each sweep that is damaged or has parts of unloaded plugins."""
    rows, problems = [], []
    for folder in folders:
        try:
            record = SweepRecord.open(folder, only_shown=True)
            rows.append(_describe(record))
            if record.state == "completed" and (count := record.added_since):
                waits, them = ("waits", "it") if count == 1 else ("wait", "them")
                way_on = f"Train {them} with: sweep resume {record.name}"
                problems.append(f"{record.name}: {plural(count, 'trial')} {waits}. {way_on}")
            problems += [f"{folder.name}: {record.without_plugins}"] if record.missing else []
        except UserError as error:
            reason = str(error)
            problems.append(reason if folder.name in reason else f"{folder.name}: {reason}")
    return rows, problems


def _describe(record: SweepRecord) -> SweepRow:
    trials, best = record.trials, record.trials.best()
    ended = sum(trial.state not in UNFINISHED for trial in trials)
    score, error = (best.score, best.standard_error) if best else (None, None)
    started, notes = record.header.time, " · ".join(note.text for note in record.notes)
    return SweepRow(
        record.name, record.state, ended, record.budget, trials.metric, score, error, started, record.folder.path, notes
    )


def describe_remote(sweep: RemoteSweep) -> RemoteRow:
    """Return the row of a sweep in an MLflow store."""
    metrics = sweep.run.data.metrics
    best = next((name for name in metrics if name.startswith(BEST)), "")
    counts = {name.removeprefix(COUNT): int(value) for name, value in metrics.items() if name.startswith(COUNT)}
    done = sum(count for state, count in counts.items() if state not in UNFINISHED)
    tags = " ".join(f"{name}={value}" for name, value in sorted(sweep.tags.items()))
    started = sweep.run.info.start_time / 1000
    return RemoteRow(
        sweep.name, sweep.state, done, best.removeprefix("best_"), metrics.get(best), started, sweep.owner, tags
    )
