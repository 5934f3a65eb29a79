"""The tables of the command line: leaderboard, space and sweeps. They fit the width of the terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.formatting import format_score, format_seconds, plural
from search.core.trials import Trial, Trials
from search.display.columns import Column, Columns, make_console
from search.display.recipe_text import baseline_of, describe_recipe, format_state, short_recipe
from search.display.significance import compare_with_baseline, describe_frozen, describe_ties
from spaces.parameters.domains import format_value
from training.recipe import Recipe, flatten
from training.score_metrics import COST

if TYPE_CHECKING:
    from spaces.space import Space

__all__ = ["SweepRow", "leaderboard", "make_console", "short_recipe", "space_table", "sweeps_table"]

REASONS = 3  # reasons of failures that are shown at most


def leaderboard(trials: Trials, limit: int = 10) -> RenderableType:
    """Return the best trials, completed ones first, and sentences about how certain their order is."""
    ranked, baseline = trials.ranked(), baseline_of(trials)
    rows = [_leader(rank, trial, trials.metric, baseline) for rank, trial in enumerate(ranked[:limit], start=1)]
    more = [Text(f"… and {len(ranked) - limit} more", style="dim")] if len(ranked) > limit else []
    sentences = [
        *_describe_failures(trials),
        *describe_ties(trials),
        *compare_with_baseline(trials),
        *describe_frozen(trials),
    ]
    space = [Text("")] if rows else []
    return Group(Columns(LEADERS, rows, whole=1), *more, *space, *(Text(sentence) for sentence in sentences))


LEADERS = [
    Column("#", right=True),
    Column("trial"),
    Column("state"),
    Column("score", right=True),
    Column("epochs", right=True, rank=1),
    Column("best at", right=True, rank=3),
    Column("training", right=True, rank=2),
    Column("recipe"),
]


def _leader(rank: int, trial: Trial, metric: str, baseline: Recipe) -> list[str]:
    last = trial.reports[-1]
    return [
        str(rank),
        trial.name,
        format_state(trial.state),
        format_score(metric, last.score, last.standard_error),
        f"{trial.epoch}/{trial.epochs}",
        str(last.best_epoch),
        format_seconds(sum(last.metrics.get(part) or 0.0 for part in COST)),
        describe_recipe(trial, baseline),
    ]


def _describe_failures(trials: Trials) -> Iterator[str]:
    """Return a sentence for each reason of failures."""
    groups: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        if trial.state in ("failed", "out_of_memory", "diverged"):
            groups.setdefault((format_state(trial.state), trial.reason.rstrip(".")), []).append(trial.name)
    for (state, reason), names in list(groups.items())[:REASONS]:
        who = names[0] if len(names) == 1 else f"{len(names)} trials, {names[0]} the first of them,"
        ended = f"ran {state}" if state == "out of memory" else state
        yield f"{who} {ended}{': ' if reason else ''}{reason}."
    if len(groups) > REASONS:
        yield f"Trials failed for {plural(len(groups) - REASONS, 'more reason')}; the ledger has all of them."


def space_table(space: Space) -> RenderableType:
    """Return every search parameter, every fixed value that is not the default, and the size of the space."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("technique", "hyperparameter", "domain or fixed value", "only with"):
        table.add_column(title, no_wrap=title != "domain or fixed value")
    for row in space.rows():
        domain = row.domain if row.is_fixed else _name_options(row.domain)
        cells = (row.technique, row.hyperparameter, domain, _shorten(row.condition, row.technique))
        table.add_row(*map(Text, cells), style="dim" if row.is_fixed else "")
    return Group(table, Text(""), Text(describe_size(space)))


def _name_options(domain: str) -> str:
    """Replace options that contain domains by their number; each such domain has its own row."""
    options = domain.split(" | ")
    return " | ".join(f"option {i}" if option[0] == "{" else option for i, option in enumerate(options, start=1))


def _shorten(condition: str, technique: str) -> str:
    """In rows of the same technique, shorten `optimizer=sgd` to `sgd` and `mixup[1]` to `option 2`."""
    condition = re.sub(r"([\w.]+)\[(\d+)\]", lambda m: f"{m[1]}[option {int(m[2]) + 1}]", condition)
    return re.sub(rf"\b{technique}(?:=([^,]+)|\[([^]]+)\])", lambda m: m[1] or m[2], condition)


SAMPLERS = {"tpe": "proposed by TPE", "random": "drawn at random", "grid": "taken from the grid"}


def describe_size(space: Space) -> str:
    """Describe the number of combinations, the continuous ranges, and how they are searched."""
    search, scheduler = space.search, space.search.scheduler
    continuous = sum(row.domain.startswith(("uniform", "log_uniform")) for row in space.rows())
    size = plural(space.count(), "combination") + " of the discrete part"
    if continuous:
        size += f" and {plural(continuous, 'continuous range')}"
    how = "each trained to its last epoch"
    if scheduler.name == "asha":
        verb = "stopped early" if scheduler.kind == "stop" else "paused"
        how = f"{verb} by ASHA: after {plural(scheduler.min_epochs, 'epoch')} or more, "
        how += f"the best 1 in {scheduler.reduction_factor} at each rung continue"
    chosen = flatten(search.baseline.model_dump(exclude_unset=True))
    named = " ".join(f"{path}={format_value(value)}" for path, value in chosen.items())
    baseline = f"the baseline ({named})" if named else "the baseline"
    return (
        f"{size}. {plural(search.trials, 'trial')}, ranked by {search.metric}: {baseline} at three learning rates, "
        f"then recipes {SAMPLERS[search.sampler]}, {how}."
    )


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
SWEEPS = [*SWEEP, Column("folder")]
REMOTE_SWEEPS = [*SWEEP, Column("owner"), Column("tags")]


def sweeps_table(rows: Sequence[SweepRow]) -> RenderableType:
    """Return the table of the sweeps, in the given order."""
    cells = [[*_sweep_cells(row, f"{row.done}/{row.total}", row.standard_error), str(row.folder)] for row in rows]
    return Columns(SWEEPS, cells) if cells else Text("No sweeps here yet.")


def remote_table(rows: Sequence[RemoteRow]) -> RenderableType:
    """Return the table of the sweeps in an MLflow store, in the given order."""
    cells = [[*_sweep_cells(row, str(row.done)), row.owner, row.tags] for row in rows]
    return Columns(REMOTE_SWEEPS, cells) if cells else Text("No such sweeps there.")


def _sweep_cells(row: SweepRow | RemoteRow, trials: str, error: float | None = None) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started))
    score = format_score(row.metric, row.score, error) if row.metric else ""
    return [row.name, row.state, trials, score, row.metric, started]
