"""The content of a report as plain rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.report.sweep_report import Findings


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
        [
            EffectRow(
                str(row.technique),
                str(row.parameter),
                str(row.level),
                bool(row.detail),
                str(row.verdict),
                float(row.effect),
                float(row.low),
                float(row.high),
                int(row.full),
                int(row.full_off),
                float(row.best),
                float(row.best_off),
                int(row.trials),
            )
            for row in findings.effects.itertuples()
        ],
        [
            InteractionRow(
                str(row.one), str(row.other), float(row.effect), float(row.low), float(row.high), float(row.clear)
            )
            for row in findings.interactions.itertuples()
        ],
        list(findings.cautions),
        list(sweep.notes),
    )
