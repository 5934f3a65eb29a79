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

from analysis.effects.technique_effects import NOT_ENOUGH
from analysis.report.findings import (
    Findings,
    describe_baseline,
    describe_costs,
    describe_interactions,
    describe_reach,
    find,
    order_effects,
)
from analysis.report.page import Section
from analysis.report.sentences import describe_lead
from analysis.report.sweep_report import render_report
from ledger.formatting import format_effect, format_score, plural
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.display.sweep_display import SweepDisplay
from search.display.tables.columns import Column, Columns
from search.evaluation.follow import write_page
from search.evaluation.trial_export import read_weights
from search.tracking.own_run import log_results
from search.tracking.run import PAGE
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

PREDICTED = 1000  # validation images at most, evenly from all
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
    write_page(out, render_report(findings, find_mistakes(record, console)))
    console.print(Text(describe_lead(findings.sweep.metric, findings.lead), style="bold"))
    if rows := list(_rows(findings)):  # a caution names the levels without enough trials
        console.print()
        console.print(Columns(COLUMNS, rows))
    console.print(Text(f"{describe_baseline(findings.sweep)} They compare scores at full length."), style="dim")
    for sentence in (*describe_reach(findings), *describe_interactions(findings), *describe_costs(findings)):
        console.print(Text(sentence))
    for sentence in filter(None, [*findings.cautions, record.without_plugins]):
        console.print(Text.assemble(("! ", "bold yellow"), sentence))
    console.print(Text(f"Report: {out}"))
    attach_page(record, out, console, uri)
    return findings


def find_mistakes(record: SweepRecord, console: Console) -> list[Section]:
    """Return sections about the best trial's predictions in validation; none where its weights are not on this machine."""
    if (trial := record.trials.best()) is None or (saved := read_weights(record, trial)[0]) is None:
        return []
    import numpy as np

    from analysis.held_out.score_page import draw_worst_of, render_score
    from analysis.held_out.scoring import score_labels
    from training.evaluate import load_same_data, predict_part, restore_model
    from training.process.resources import find_device
    from training.recipe import read_recipe

    classes = tuple(saved["classes"])
    try:
        recipe = read_recipe(saved["recipe"])
        val, model = load_same_data(recipe, classes).val, restore_model(recipe, saved["state_dict"], len(classes))
        part = val.select(np.unique(np.linspace(0, len(val) - 1, PREDICTED).round().astype(int)))
        logits, labels = predict_part(model, part, recipe, device=find_device())
    except UserError as error:
        console.print(f"! The report does not show what the best trial gets wrong. {error}", markup=False)
        return []
    score = score_labels(logits.numpy(), labels.numpy(), classes)
    images = plural(len(part), "validation image")
    text = f"Trial {trial.name} on {images}. It was chosen by them, so it makes more mistakes on others."
    worst = draw_worst_of(part, score["worst"], classes, recipe)
    return render_score("What the best trial gets wrong", [text], score, classes, worst)


def attach_page(record: SweepRecord, page: Path, console: Console, uri: str | None = None) -> None:
    """Copy the page of a sweep that has ended to its run in MLflow; `uri` as in `report_sweep`."""
    if not page.is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copy(page, Path(folder, PAGE)))
        log_results(record, {}, [copied], [], time.time(), SweepDisplay(console).line, uri)


def _rows(findings: Findings) -> Iterator[list[str]]:
    metric, rows = findings.sweep.metric, findings.effects
    for row in order_effects(rows[~rows.detail.astype(bool) & (rows.verdict != NOT_ENOUGH)]).itertuples():
        scores = [format_score(metric, None if math.isnan(score) else score) for score in (row.best, row.best_off)]
        effect = format_effect(metric, row.effect, row.low, row.high)
        yield [row.verdict, effect, *scores, str(row.full), f"{row.parameter}={row.level}"]
