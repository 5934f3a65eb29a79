"""The columns of all tables of trials: data frames, `sweep show`, JSON, CSV, and the report.

A column is declared here and nowhere else. Programs of users read the names: add a column at the end, and keep its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ledger.formatting import format_digits, format_megabytes, format_seconds, mask_secrets
from ledger.trials import Trial

Fact = str | float | None  # of a trial; a float may be whole, or a truth value

# frame: data frames. rows: JSON. pages: the data of the report.
# listed: also shown as a column, in their tables of trials and in those of `sweep show`.
Table = Literal["frame", "rows", "pages", "listed"]


@dataclass(frozen=True)
class TrialColumn:
    """A fact about each trial, None where it is not known.

    `name` is that in data frames and pages, and `row`, if it is given, that in JSON, CSV and `sweep show`. A column with
    a `title` can be an axis of a figure; pages show the title with its `unit`, and terminals the title and `text`.
    """

    name: str
    kind: object  # its type
    value: Callable[[Trial], Fact]
    title: str = ""
    unit: str = ""
    text: Callable[[Any], str] = lambda value: format_digits(value, 4) if isinstance(value, float) else str(value)
    row: str = ""
    tables: tuple[Table, ...] = get_args(Table)

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def put_on_page(self, value: Fact, scale: float) -> Fact:
        """Return a value for JavaScript, which has no NaN; scores are multiplied by `scale`."""
        if not isinstance(value, float):
            return value
        shown = value * scale if self.name in ("score", "standard_error") else value
        return float(f"{shown:.7g}") if math.isfinite(shown) else None


def _from_last(name: str) -> Callable[[Trial], Fact]:
    return lambda trial: getattr(trial.reports[-1], name) if trial.reports else None


DATA: tuple[Table, ...] = ("frame", "rows", "pages")
COST: tuple[Table, ...] = ("frame", "pages")
COLUMNS = [
    TrialColumn("trial", int, lambda trial: trial.number, text="{:04d}".format, tables=DATA),
    TrialColumn("state", str, lambda trial: trial.state, text=lambda state: state.replace("_", " "), tables=DATA),
    TrialColumn("reason", str, lambda trial: mask_secrets(trial.reason), tables=DATA),
    TrialColumn("origin", str, lambda trial: trial.origin, tables=("frame", "rows")),
    TrialColumn("is_baseline", bool, lambda trial: trial.origin == "baseline", tables=("frame", "pages")),
    TrialColumn("score", float | None, _from_last("score"), tables=DATA),
    TrialColumn("standard_error", float | None, _from_last("standard_error"), tables=DATA),
    TrialColumn("best_epoch", int | None, _from_last("best_epoch"), tables=("frame", "rows")),
    TrialColumn("epochs_done", int, lambda trial: trial.epoch, row="epoch", tables=DATA),
    TrialColumn("epochs", int, lambda trial: trial.epochs, tables=("rows", "pages")),  # data frames have the recipe's
    TrialColumn("seconds", float | None, lambda trial: trial.seconds, "training", "s", format_seconds, "cost_seconds"),
    TrialColumn("memory_mb", float | None, lambda trial: trial.memory_mb, "peak memory", "MB", format_megabytes),
    TrialColumn(
        "ece", float | None, lambda trial: trial.kept_metrics.get("val_ece"), "calibration error", "ECE", tables=COST
    ),
    TrialColumn("host", str | None, lambda trial: trial.host, tables=DATA),
    TrialColumn("started", float, lambda trial: trial.started, tables=("frame",)),
    TrialColumn("ended", float | None, lambda trial: trial.ended, tables=("frame",)),
]


def list_columns(table: Table) -> list[TrialColumn]:
    """Return the columns of these tables, in the order of their declaration."""
    return [column for column in COLUMNS if table in column.tables]
