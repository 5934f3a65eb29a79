"""`sweep report`: write the page, and print a summary in the terminal."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from analysis.report.findings import (
    Findings,
    describe_baseline,
    describe_costs,
    describe_interactions,
    find,
    order_effects,
)
from analysis.report.sentences import describe_lead
from analysis.report.sweep_report import render_report
from ledger.formatting import format_effect, format_score
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.display.tables.columns import Column, Columns
from search.evaluation.follow import write_page
from search.tracking.own_run import log_results
from search.tracking.run import PAGE
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

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
    if made := record.replication:
        raise UserError(
            f"{record.name}: it is a replication of {made.of}. Its page is written by: sweep {made.kind} {made.of}"
        )
    findings = find(make_tables(record))
    write_page(out, render_report(findings))
    console.print(Text(describe_lead(findings.sweep.metric, findings.lead), style="bold"))
    console.print()
    console.print(Columns(COLUMNS, list(_rows(findings))))
    console.print(Text(f"{describe_baseline(findings.sweep)} They compare scores at full length."), style="dim")
    for sentence in (*describe_interactions(findings), *describe_costs(findings)):
        console.print(Text(sentence))
    for sentence in filter(None, [*findings.cautions, record.without_plugins]):
        console.print(Text.assemble(("! ", "bold yellow"), sentence))
    console.print(Text(f"Report: {out}"))
    attach_page(record, out, console, uri)
    return findings


def attach_page(record: SweepRecord, page: Path, console: Console, uri: str | None = None) -> None:
    """Copy the page of a sweep that has ended to its run in MLflow; `uri` as in `report_sweep`."""
    if not page.is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copy(page, Path(folder, PAGE)))
        log_results(record, {}, [copied], [], time.time(), console, uri)


def _rows(findings: Findings) -> Iterator[list[str]]:
    metric, rows = findings.sweep.metric, findings.effects
    for row in order_effects(rows[~rows.detail.astype(bool)]).itertuples():
        scores = [format_score(metric, None if math.isnan(score) else score) for score in (row.best, row.best_off)]
        effect = format_effect(metric, row.effect, row.low, row.high)
        yield [row.verdict, effect, *scores, str(row.full), f"{row.parameter}={row.level}"]
