"""Results for other programs, as JSON or CSV alone on the standard output: exact numbers, and names that do not change."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.columns import list_columns
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.display.tables.columns import make_console
from training.recipe import flatten

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from analysis.report.findings import Findings

Row = TypeVar("Row", "EffectRow", "InteractionRow")


_FIRST, *_OTHERS = [(column.row_name, column.kind) for column in list_columns("rows")]
TrialRow = make_dataclass(
    "TrialRow",
    [_FIRST, ("rank", int | None), *_OTHERS, ("recipe", dict[str, object])],
    frozen=True,
    namespace={
        "__module__": __name__,
        "__doc__": "One trial. `rank` and the scores are null before its first report; `recipe` has values by dotted path.",
    },
)


@dataclass(frozen=True)
class SweepTable:
    """A sweep with all its trials, in the order of their rank; those without a score come last."""

    name: str
    state: str
    metric: str
    planned_trials: int
    trials: list[Any]  # rows of TrialRow
    notes: list[str]


def describe_sweep(record: SweepRecord) -> SweepTable:
    """Return a sweep with all its trials."""
    ranks: list[tuple[int | None, Trial]] = list(enumerate(record.trials.ranked(), start=1))
    ranks += [(None, trial) for trial in record.trials if trial.score is None]
    rows = []
    for rank, trial in ranks:
        values = {column.row_name: column.value(trial) for column in list_columns("rows")}
        rows.append(TrialRow(**values, rank=rank, recipe=trial.recipe.flat()))
    notes = [note.text for note in record.notes]
    return SweepTable(record.name, record.state, record.trials.metric, record.budget, rows, notes)


@dataclass(frozen=True)
class EffectRow:
    """The effect of one level of a search parameter, in the score's unit; positive is better.

    Nine in ten intervals from `low` to `high` contain the true effect. `is_detail` marks a range inside an option.
    `full_length` and `full_length_without` count the trials at full length with the level and with the baseline's choice;
    `best` and `best_without` are the best scores among them. The effect is null if it is unknown.
    """

    technique: str
    parameter: str
    level: str
    is_detail: bool
    verdict: str
    effect: float
    low: float
    high: float
    full_length: int
    full_length_without: int
    best: float
    best_without: float
    trials: int


@dataclass(frozen=True)
class InteractionRow:
    """The effect of two options together minus the sum of their single effects; `clear` is the certainty of its sign."""

    one: str
    other: str
    effect: float
    low: float
    high: float
    clear: float


@dataclass(frozen=True)
class ReportResult:
    """What `sweep report` found; `page` is the file that it wrote."""

    sweep: str
    metric: str
    page: str
    best: int
    score: float
    standard_error: float
    effects: list[EffectRow]
    interactions: list[InteractionRow]
    cautions: list[str]
    notes: list[str]


# The columns of the tables of effects that have other names in the rows.
RENAMED = {"detail": "is_detail", "full": "full_length", "full_off": "full_length_without", "best_off": "best_without"}


def describe_findings(findings: Findings, page: Path) -> ReportResult:
    """Return the findings of a report as plain values."""
    sweep, best = findings.sweep, findings.sweep.completed.iloc[0]
    return ReportResult(
        sweep.name,
        sweep.metric,
        str(page),
        int(best.trial),
        float(best.score),
        float(best.standard_error),
        _read_rows(findings.effects.rename(columns=RENAMED), EffectRow),
        _read_rows(findings.interactions, InteractionRow),
        list(findings.cautions),
        list(sweep.notes),
    )


def _read_rows(table: pd.DataFrame, row_class: type[Row]) -> list[Row]:
    """Return the rows of a table with a column for each field of `row_class`."""
    return [row_class(**row) for row in table[[field.name for field in fields(row_class)]].to_dict("records")]


@contextmanager
def apart(is_for_programs: bool) -> Iterator[Console]:
    """Return a console for the messages of the block. For programs, all that the block prints goes to standard error."""
    if not is_for_programs:
        yield make_console()
        return
    with redirect_stdout(sys.stderr):
        yield make_console(sys.stderr)


def print_result(whole: object, rows: Sequence[Any], row_class: type, as_json: bool) -> None:
    """Print the whole result as JSON, or else its rows, which are of one kind, as CSV."""
    print(to_json(whole) if as_json else to_csv(rows, row_class).rstrip())


def to_json(rows: object) -> str:
    """Return a dataclass, a list of them or plain values as JSON."""
    plain = rows
    if isinstance(rows, list):
        plain = [asdict(row) for row in rows]
    elif is_dataclass(rows) and not isinstance(rows, type):
        plain = asdict(rows)
    return json.dumps(_make_plain(plain), indent=2, ensure_ascii=False, default=str)


def _make_plain(value: Any) -> Any:
    """Replace numbers that JSON does not have, such as NaN, by null."""
    if isinstance(value, dict):
        return {key: _make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(rows: Sequence[Any], row_class: type) -> str:
    """Return dataclasses as CSV with a header and the fields of a class; a mapping gives a column for each value."""
    names = [field.name for field in fields(row_class)]
    flat = [flatten(_make_plain({name: value for name, value in asdict(row).items() if name in names})) for row in rows]
    plain = [name for name in names if all(name in row for row in flat)]
    return write_csv(flat, list(dict.fromkeys([*plain, *(name for row in flat for name in row)])))


def write_csv(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> str:
    """Return rows of values by name as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
