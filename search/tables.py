"""The tables of the command line: leaderboard, space and sweeps, fitted to the width they are shown at."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from search.honesty import compare_with_baseline, describe_ties
from search.trials import Trial, Trials
from search.wording import baseline_of, cut, describe_recipe, format_score, format_seconds, format_state, short_recipe

if TYPE_CHECKING:
    from spaces.space import Space

__all__ = ["SweepRow", "leaderboard", "make_console", "short_recipe", "space_table", "sweeps_table"]

PIPED = 1000  # columns where a program reads: nothing is cut or wrapped
LAST = 32  # columns that the last, cut one gets before others are left out for it
REASONS = 3  # trials without a score that are named


def make_console(file: IO[str] | None = None) -> Console:
    """A console that redraws only in a terminal, and cuts nothing in a file or a pipe."""
    file = file or sys.stdout
    is_terminal = file.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else PIPED
    return Console(file=file, width=width, force_interactive=None if is_terminal else False, highlight=False)


def leaderboard(trials: Trials, limit: int = 10) -> RenderableType:
    """The best trials, completed ones first, and how far their scores can be told apart."""
    ranked, baseline = trials.ranked(), baseline_of(trials)
    rows = [_leader(rank, trial, trials.metric, baseline) for rank, trial in enumerate(ranked[:limit], start=1)]
    more = [Text(f"… and {len(ranked) - limit} more", style="dim")] if len(ranked) > limit else []
    sentences = [*_describe_scoreless(trials), *describe_ties(trials), *compare_with_baseline(trials)]
    space = [Text("")] if rows else []
    return Group(_Columns(LEADERS, rows, whole=1), *more, *space, *(Text(sentence) for sentence in sentences))


@dataclass(frozen=True)
class Column:
    """`rank` says which go first when there is no room: the highest; 0 always stays."""

    title: str
    right: bool = False
    rank: int = 0


LEADERS = [
    Column("#", right=True),
    Column("trial"),
    Column("state"),
    Column("score", right=True),
    Column("epochs", right=True, rank=2),
    Column("best at", right=True, rank=3),
    Column("training", right=True, rank=1),
    Column("recipe"),
]


def _leader(rank: int, trial: Trial, metric: str, baseline: dict) -> list[str]:
    last = trial.reports[-1]
    return [
        str(rank),
        trial.name,
        format_state(trial.state),
        format_score(metric, last["score"], last["standard_error"]),
        f"{trial.epoch}/{trial.epochs}",
        str(last["best_epoch"]),
        format_seconds(last["metrics"].get("train_seconds", 0.0)),
        describe_recipe(trial, baseline),
    ]


def _describe_scoreless(trials: Trials) -> Iterator[str]:
    """Why the trials that are in no leaderboard are in none."""
    ended = [trial for trial in trials if trial.score is None and trial.ended is not None]
    for trial in ended[:REASONS]:
        reason = f": {trial.reason.rstrip('.')}" if trial.reason else ""
        yield f"{trial.name} {format_state(trial.state)} before its first score{reason}."
    if len(ended) > REASONS:
        yield f"{len(ended) - REASONS} more trials ended before their first score."


@dataclass(frozen=True)
class _Columns:
    """Rows in columns that fit the width: some are left out for the last one, which is then cut at a word.

    The first `whole` rows are wrapped instead.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    whole: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            return
        widths = [max(map(cell_len, cells)) for cells in zip(self.titles, *self.rows, strict=True)]
        shown = self._choose(widths, options.max_width)
        indent = sum(widths[i] + 2 for i in shown[:-1])
        room = max(8, options.max_width - indent)
        yield self._line(self.titles, widths, shown, style="bold")
        for number, cells in enumerate(self.rows):
            last = cells[shown[-1]]
            lines = wrap(last, room, break_on_hyphens=False) if number < self.whole else [cut(last, room)]
            yield self._line([*cells[:-1], *lines[:1]], widths, shown)
            yield from (Text(" " * indent + line, no_wrap=True) for line in lines[1:])

    def _line(self, cells: Sequence[str], widths: list[int], shown: list[int], style: str = "") -> Text:
        words = [self._pad(cells[i], widths[i], i) for i in shown[:-1]] + [cells[-1]]
        return Text("  ".join(words).rstrip(), style=style, no_wrap=True, overflow="ellipsis")

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns]

    def _choose(self, widths: list[int], width: int) -> list[int]:
        shown = list(range(len(widths)))
        optional = sorted((i for i in shown if self.columns[i].rank), key=lambda i: -self.columns[i].rank)
        for i in optional:
            if sum(widths[j] + 2 for j in shown[:-1]) + min(LAST, widths[-1]) <= width:
                break
            shown.remove(i)
        return shown

    def _pad(self, cell: str, width: int, i: int) -> str:
        space = " " * (width - cell_len(cell))
        return space + cell if self.columns[i].right else cell + space


def space_table(space: Space) -> RenderableType:
    """Every hole and every fixed value that is not the default, and how large the space is."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("technique", no_wrap=True)
    table.add_column("hyperparameter", no_wrap=True)
    table.add_column("domain or fixed value", overflow="fold")
    table.add_column("only with", overflow="fold")
    rows = space.rows()
    for row in rows:
        cells = (row.technique, row.hyperparameter, row.domain, _describe_condition(row.condition))
        table.add_row(*map(Text, cells), style="dim" if row.is_fixed else "")
    return Group(table, Text(""), Text(describe_size(space)))


def describe_size(space: Space) -> str:
    """The combinations, the continuous hyperparameters, and how they are searched."""
    continuous = sum(row.domain.startswith(("uniform", "log_uniform")) for row in space.rows())
    count, search = space.count(), space.search
    size = f"{count:,} combination{'s' * (count != 1)} of the discrete part"
    if continuous:
        size += f", times {continuous} continuous hyperparameter{'s' * (continuous != 1)}"
    scheduler = search.scheduler
    how = (
        f"stopped early by ASHA (1 in {scheduler.reduction_factor} goes on, after at least {scheduler.min_epochs} epoch"
        f"{'s' * (scheduler.min_epochs != 1)})"
        if scheduler.name == "asha"
        else "each trained to its last epoch"
    )
    return f"{size}. {search.trials} trials drawn by {search.sampler}, {how}, ranked by {search.metric}."


def _describe_condition(condition: str) -> str:
    return re.sub(r"([\w.]+)\[(\d+)\]", lambda m: f"option {int(m[2]) + 1} of {m[1]}", condition)


@dataclass(frozen=True)
class SweepRow:
    """One sweep as `sweep list` shows it; `started` in seconds since 1970."""

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
    Column("folder"),
]


def sweeps_table(rows: Sequence[SweepRow]) -> RenderableType:
    """The sweeps of a storage folder, in the order given."""
    return _Columns(SWEEPS, [_sweep_cells(row) for row in rows]) if rows else Text("No sweeps here yet.")


def _sweep_cells(row: SweepRow) -> list[str]:
    return [
        row.name,
        row.state,
        f"{row.done}/{row.total}",
        format_score(row.metric, row.score, row.standard_error),
        row.metric,
        time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)),
        str(row.folder),
    ]
