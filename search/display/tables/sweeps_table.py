"""Sweeps as a table: those of a storage folder, or those of an MLflow store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from analysis.formatting import format_score
from search.display.recipe_text import cut
from search.display.tables.columns import Column, Columns

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
    """One row of `sweep list --tracking-uri`. `started` is in seconds since 1970."""

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
