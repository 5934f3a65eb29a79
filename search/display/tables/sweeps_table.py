"""The sweeps of a storage folder as a table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from ledger.folder import SweepFolder
from ledger.formatting import format_score, plural
from ledger.record import SweepRecord
from ledger.trials import UNFINISHED
from search.display.terminal import Column, Columns
from training.errors import UserError


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


SWEEPS = [
    Column("name"),
    Column("state"),
    Column("trials", right=True),
    Column("best score", right=True),
    Column("metric", rank=2),
    Column("started", rank=1),
    Column("folder", rank=3),
]


def sweeps_table(rows: Sequence[SweepRow]) -> RenderableType:
    """Return the table of the sweeps, in the given order."""
    return Columns(SWEEPS, [_list_cells(row) for row in rows]) if rows else Text("No sweeps here yet.")


def _list_cells(row: SweepRow) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started))
    score = format_score(row.metric, row.score, row.standard_error)
    return [row.name, row.state, f"{row.done}/{row.total}", score, row.metric, started, str(row.folder)]


def describe_sweeps(folders: Iterable[SweepFolder]) -> tuple[list[SweepRow], list[str]]:
    """Return a row for each sweep, and a sentence for each sweep that is damaged or has parts of unloaded plugins."""
    rows, problems = [], []
    for folder in folders:
        try:
            record = SweepRecord.open(folder, only_shown=True)
            rows.append(_describe(record))
            if record.state == "completed" and (count := record.added_since):
                waits, them = ("waits", "it") if count == 1 else ("wait", "them")
                hint = f"Train {them} with: sweep resume {record.called}"
                problems.append(f"{record.name}: {plural(count, 'trial')} {waits}. {hint}")
            problems += [f"{folder.name}: {record.without_plugins}"] if record.missing else []
        except UserError as error:
            reason = str(error)
            problems.append(reason if folder.name in reason else f"{folder.name}: {reason}")
    return rows, problems


def _describe(record: SweepRecord) -> SweepRow:
    trials, best = record.trials, record.trials.best()
    ended = sum(trial.state not in UNFINISHED for trial in trials)
    score, error = (best.score, best.standard_error) if best else (None, None)
    started = record.header.time
    return SweepRow(
        record.name, record.state, ended, record.budget, trials.metric, score, error, started, record.folder.path
    )
