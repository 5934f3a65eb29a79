"""`sweep show` with --sort, --filter and --columns: choose and order trials by their facts and the values of recipes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ledger.columns import list_columns
from ledger.formatting import format_digits, format_score
from search.display.tables.columns import Column, Columns
from search.records.rows import SweepTable, TrialRow, to_csv, to_json, write_csv
from spaces.parameters.domains import format_value
from spaces.reading.document import did_you_mean
from training.errors import UserError

FACTS = [field.name for field in fields(TrialRow) if field.name != "recipe"]
USUAL = ("rank", "trial", "state", "score", "epoch", *(column.row_name for column in list_columns("listed")))
FORM = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")
ORDERED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Cells = Mapping[str, Any]  # the facts of a trial and the values of its recipe, by the name of the column


@dataclass(frozen=True)
class Condition:
    """One --filter, such as `optimizer.lr>0.01`. A trial without the column does not meet it."""

    column: str
    sign: str
    value: str

    def is_met(self, cells: Cells) -> bool:
        cell = cells.get(self.column)
        if cell is None:
            return False
        if self.sign in ORDERED:
            return ORDERED[self.sign](self._as_number(cell), float(self.value))
        number = _read_number(self.value)
        is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
        same = cell == number if is_number and number is not None else format_value(cell) == self.value
        return same == (self.sign != "!=")

    def _as_number(self, cell: Any) -> float:
        if isinstance(cell, bool) or not isinstance(cell, int | float):
            raise UserError(
                f"--filter {self.column}{self.sign}{self.value}: {self.column} has the value {format_value(cell)}, which "
                f"is not a number. Compare it with = or !=."
            )
        return float(cell)


class TrialTable:
    """The trials of a sweep that meet all conditions, in the order of a column."""

    def __init__(self, table: SweepTable, sort: str | None, filters: Sequence[str], columns: str | None) -> None:
        """Choose and order the trials.

        `sort` is a column; with a minus before it, the largest value comes first; None keeps the order of the ranks.
        `columns` are names with commas; by default some facts, and the columns of the conditions and of the order.
        """
        self.table = table
        self.named = columns
        rows = [{**{name: getattr(row, name) for name in FACTS}, **row.recipe} for row in table.trials]
        self.known = list(dict.fromkeys([*FACTS, *(name for row in rows for name in row)]))
        conditions = [self._read_condition(text) for text in filters]
        self.rows: list[Cells] = [row for row in rows if all(condition.is_met(row) for condition in conditions)]
        more = [condition.column for condition in conditions]
        if sort is not None:
            order = self._find("--sort", sort.removeprefix("-"))
            self.rows = _sort(self.rows, order, sort.startswith("-"))
            more = [order, *more]
        chosen = columns.split(",") if columns is not None else [*USUAL, *more]
        self.columns = list(dict.fromkeys(self._find("--columns", name.strip()) for name in chosen))

    def to_json(self) -> str:
        """Return the sweep with the chosen trials only."""
        return to_json(replace(self.table, trials=self._choose()))

    def to_csv(self) -> str:
        """Return the chosen trials with the columns that the user named, else with all."""
        if self.named is None:
            return to_csv(self._choose(), TrialRow).rstrip()
        return write_csv([{name: row.get(name) for name in self.columns} for row in self.rows], self.columns).rstrip()

    def _choose(self) -> list[Any]:
        by_number = {row.trial: row for row in self.table.trials}
        return [by_number[row["trial"]] for row in self.rows]

    def render(self, limit: int) -> RenderableType:
        """Return the first `limit` trials as a table, and how many there are."""
        # Without room for all, the columns on the right are left out first.
        texts = [column.row_name for column in list_columns("rows") if column.kind is str]
        columns = [Column(name, right=name not in texts, rank=place) for place, name in enumerate(self.columns)]
        cells = [[self._format(row, name) for name in self.columns] for row in self.rows[:limit]]
        more = f", {limit} of them above" if len(self.rows) > limit else ""
        count = f"{len(self.rows)} of {len(self.table.trials)} trials{more}"
        return Group(Columns(columns, cells, whole=len(cells), names_omitted=True), Text(count, style="dim"))

    def _format(self, row: Cells, name: str) -> str:
        value = row.get(name)
        if name == "score":
            return format_score(self.table.metric, value, row["standard_error"])
        if value in (None, ""):
            return "–"
        declared = next((column for column in list_columns("rows") if column.row_name == name), None)
        if declared is not None:
            return declared.text(value)
        return format_digits(value, 4) if isinstance(value, float) else format_value(value)

    def _read_condition(self, text: str) -> Condition:
        parsed = FORM.fullmatch(text)
        if parsed is None or not parsed[3]:
            raise UserError(f"--filter {text}: write it as optimizer.lr>0.01, with one of = != < <= > >= and a value.")
        column, sign, value = parsed.groups()
        if sign in ORDERED and _read_number(value) is None:
            raise UserError(f"--filter {text}: {value} is not a number, so it has no order. Compare with = or !=.")
        return Condition(self._find("--filter", column), sign, value)

    def _find(self, option: str, name: str) -> str:
        """Return the name of a column; the prefix that CSV gives to values of recipes may be there or not."""
        column = name.removeprefix("recipe.")
        if column not in self.known:
            # `lr` is nearer to `optimizer.lr` than any other name, however it is spelt.
            ends = sorted(known for known in self.known if known.rpartition(".")[2] == column)
            meant = f" Did you mean {' or '.join(ends[:3])}?" if ends else did_you_mean(column, self.known)
            raise UserError(
                f"{option}: {self.table.name} has no column {name!r}.{meant} There are "
                f"{', '.join(FACTS)}, and the fields of its recipes, such as optimizer.lr."
            )
        return column


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _sort(rows: Sequence[Cells], column: str, is_down: bool) -> list[Cells]:
    """Order rows by a column: numbers before texts, and rows without the column last."""
    has = [row for row in rows if row.get(column) is not None]
    texts = [row for row in has if not isinstance(row[column], int | float)]
    numbers = [row for row in has if isinstance(row[column], int | float)]
    numbers.sort(key=lambda row: row[column], reverse=is_down)
    texts.sort(key=lambda row: format_value(row[column]), reverse=is_down)
    return [*numbers, *texts, *(row for row in rows if row.get(column) is None)]
