"""`sweep report`: write the page, and print a summary in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from analysis.formatting import format_effect, format_score
from analysis.report.probe import describe_probe
from analysis.report.sweep_report import (
    Findings,
    describe_baseline,
    describe_costs,
    describe_interactions,
    write_report,
)
from search.display.tables.columns import Column, Columns

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
ORDER = ("useful", "harmful", "no effect seen", "unknown")


def report_sweep(name: str, out: Path, tracking_uri: str, experiment: str, console: Console) -> Findings:
    """Write the page, print a summary, and return what it shows.

    Raises:
        UserError: there is no such sweep, none of its trials completed, or the file cannot be written.
    """
    findings = write_report(name, out, tracking_uri, experiment)
    console.print(Columns(COLUMNS, list(_rows(findings))))
    console.print(Text(f"{describe_baseline(findings.sweep)} They compare scores at full length."), style="dim")
    for sentence in (
        *describe_interactions(findings),
        *describe_costs(findings),
        *describe_probe(findings.sweep.metric, findings.sweep.figures),
    ):
        console.print(Text(sentence))
    for sentence in findings.cautions:
        console.print(Text.assemble(("! ", "bold yellow"), sentence))
    for note in findings.sweep.notes:
        console.print(Text(f"Note: {note}"))
    console.print(Text(f"Report: {out}"))
    log_report(findings, out, tracking_uri, console)
    return findings


def log_report(findings: Findings, page: Path, tracking_uri: str, console: Console) -> None:
    """Log the page to the sweep's own run in MLflow, as `report.html`."""
    from mlflow import MlflowClient

    from search.tracking.mlflow_store import is_outage

    try:
        MlflowClient(tracking_uri).log_text(findings.sweep.run_id, page.read_text(), "report.html")
    except Exception as error:
        if not is_outage(error):
            raise
        console.print("MLflow did not answer; run the same command to send the page again.")


def _rows(findings: Findings) -> Iterator[list[str]]:
    metric, rows = findings.sweep.metric, findings.effects
    rows = rows[~rows.detail.astype(bool)]
    for word in ORDER:
        for row in rows[rows.verdict == word].sort_values("effect", key=abs, ascending=False).itertuples():
            scores = [format_score(metric, None if math.isnan(score) else score) for score in (row.best, row.best_off)]
            effect = format_effect(metric, row.effect, row.low, row.high)
            yield [word, effect, *scores, str(row.full), f"{row.parameter}={row.level}"]
