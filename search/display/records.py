"""A sweep's trials as plain rows for other programs: numbers are not rounded, and names do not change."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from search.core.record import SweepRecord
from search.core.trials import Trial
from training.recipe import flatten
from training.score_metrics import COST


@dataclass(frozen=True)
class TrialRow:
    """One trial. `rank` and the scores are null before its first report; `recipe` has values by dotted path."""

    trial: int
    rank: int | None
    state: str
    reason: str
    origin: str
    score: float | None
    standard_error: float | None
    best_epoch: int | None
    epoch: int
    epochs: int
    cost_seconds: float | None
    recipe: dict[str, Any]


@dataclass(frozen=True)
class SweepTable:
    """A sweep with all its trials, in the order of their rank; those without a score come last."""

    name: str
    state: str
    metric: str
    planned_trials: int
    trials: list[TrialRow]
    notes: list[str]


def describe_sweep(record: SweepRecord) -> SweepTable:
    """Return a sweep with all its trials."""
    ranked = record.trials.ranked()
    others = [trial for trial in record.trials if trial.score is None]
    rows = [_describe(trial, rank) for rank, trial in enumerate(ranked, start=1)]
    rows += [_describe(trial, None) for trial in others]
    notes = [note.text for note in record.notes]
    return SweepTable(record.name, record.state, record.trials.metric, record.budget, rows, notes)


def _describe(trial: Trial, rank: int | None) -> TrialRow:
    last = trial.reports[-1] if trial.reports else None
    return TrialRow(
        trial.number,
        rank,
        trial.state,
        trial.reason,
        trial.origin,
        last.score if last else None,
        last.standard_error if last else None,
        last.best_epoch if last else None,
        trial.epoch,
        trial.epochs,
        sum(last.metrics.get(part) or 0.0 for part in COST) if last else None,
        trial.recipe.flat(),
    )


def describe_rows(rows: list[Any], kind: type, as_json: bool) -> str:
    """Return dataclasses of one kind as JSON, or else as CSV."""
    return to_json(rows) if as_json else to_csv(rows, kind).rstrip()


def to_json(rows: Any) -> str:
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
        return {key: _make_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(rows: Sequence[Any], kind: type) -> str:
    """Return dataclasses of one kind as CSV with a header; a mapping gives a column for each of its values."""
    flat = [flatten(_make_plain(asdict(row))) for row in rows]
    plain = [field.name for field in fields(kind) if all(field.name in row for row in flat)]
    return write_csv(flat, list(dict.fromkeys([*plain, *(name for row in flat for name in row)])))


def write_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return rows of values by name as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
