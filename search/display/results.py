"""Write and show what a report, a confirmation or an ablation found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from analysis.effects.technique_effects import NOT_ENOUGH
from analysis.report.findings import (
    Findings,
    describe_baseline,
    describe_costs,
    describe_interactions,
    describe_reach,
    order_effects,
)
from analysis.report.sentences import describe_lead
from ledger.formatting import format_effect, format_score
from ledger.record import SweepRecord
from search.display.sweep_display import SweepDisplay
from search.display.terminal import Column, Columns
from search.evaluation.replications.ablation import conclude_ablation
from search.evaluation.replications.confirmation import conclude_confirmation, export_winner
from search.evaluation.replications.findings import Ablation, Confirmation
from search.evaluation.replications.replication import Conclusion, Replicated, publish
from search.evaluation.report import attach_page, write_report

COLUMNS = [
    Column("verdict"),
    Column("effect (90 %)", right=True),
    Column("best with", right=True, rank=2),
    Column("without", right=True, rank=3),
    Column("full length", right=True, rank=1),
    Column("level"),
]


def report_sweep(record: SweepRecord, out: Path, console: Console, uri: str | None = None) -> Findings:
    """Write the page, print a summary, attach the page to the sweep's run in MLflow, and return what it shows.

    `uri` is the store that the sweep was read from, if it is not that of its settings.
    """
    say = SweepDisplay(console).line
    findings = write_report(record, out, say)
    console.print(Text(describe_lead(findings.sweep.metric, findings.lead), style="bold"))
    if rows := list(_rows(findings)):  # a caution names the levels without enough trials
        console.print()
        console.print(Columns(COLUMNS, rows))
    console.print(Text(f"{describe_baseline(findings.sweep)} They compare scores at full length."), style="dim")
    for sentence in (*describe_reach(findings), *describe_interactions(findings), *describe_costs(findings)):
        say(sentence)
    for sentence in filter(None, [*findings.cautions, record.without_plugins]):
        console.print(Text.assemble(("! ", "bold yellow"), sentence))
    say(f"Report: {out}")
    attach_page(record, out, say, uri)
    return findings


def _rows(findings: Findings) -> Iterator[list[str]]:
    metric, rows = findings.sweep.metric, findings.effects
    for row in order_effects(rows[~rows.detail.astype(bool) & (rows.verdict != NOT_ENOUGH)]).itertuples():
        scores = [format_score(metric, score) for score in (row.best, row.best_off)]
        effect = format_effect(metric, row.effect, row.low, row.high)
        yield [row.verdict, effect, *scores, str(row.full), f"{row.parameter}={row.level}"]


def conclude_replication(replicated: Replicated, console: Console) -> Ablation | Confirmation:
    """Show what was found, write it, log it to MLflow, and export the winner of a confirmation."""
    is_confirmation, say = replicated.event.kind == "confirm", SweepDisplay(console).line
    conclusion = conclude_confirmation(replicated) if is_confirmation else conclude_ablation(replicated)
    console.print(show(conclusion))
    publish(conclusion, say)
    if isinstance(conclusion.outcome, Confirmation):
        say(export_winner(replicated, conclusion.outcome))
    return conclusion.outcome


def show(conclusion: Conclusion) -> RenderableType:
    """Return a table between sentences. In a narrow window it has no column `value`."""
    columns = [Column(title, rank=int(title == "value")) for title in conclusion.columns]
    table = Columns(columns, conclusion.rows, whole=len(conclusion.rows))
    return Group(Text(conclusion.above), Text(""), table, Text(""), *map(Text, conclusion.below))
