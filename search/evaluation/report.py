"""`sweep report`: write the page, and attach it to the sweep's run in MLflow."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analysis.report.findings import Findings, find
from analysis.report.page import Section
from analysis.report.sweep_report import render_report
from ledger.formatting import plural
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.evaluation.follow import write_page
from search.evaluation.trial_export import read_weights
from search.tracking.own_run import log_results
from search.tracking.run import PAGE
from training.errors import UserError

PREDICTED = 1000  # validation images at most, evenly from all


def write_report(record: SweepRecord, out: Path, say: Callable[[str], None]) -> Findings:
    """Write the page, and return what it shows."""
    if made := record.replication:
        raise UserError(f"{record.name}: it is a replication of {made.of}. Its own page: sweep {made.kind} {made.of}")
    findings = find(make_tables(record))
    write_page(out, render_report(findings, find_mistakes(record, say)))
    return findings


def find_mistakes(record: SweepRecord, say: Callable[[str], None]) -> list[Section]:
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
        say(f"! The report does not show what the best trial gets wrong. {error}")
        return []
    score = score_labels(logits.numpy(), labels.numpy(), classes)
    images = plural(len(part), "validation image")
    text = f"Trial {trial.name} on {images}. It was chosen by them, so it makes more mistakes on others."
    worst = draw_worst_of(part, score["worst"], classes, recipe)
    return render_score("What the best trial gets wrong", [text], score, classes, worst)


def attach_page(record: SweepRecord, page: Path, say: Callable[[str], None], uri: str | None = None) -> None:
    """Copy the page of a sweep that has ended to its run in MLflow; `uri` is its store, if not that of its settings."""
    if not page.is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copy(page, Path(folder, PAGE)))
        log_results(record, {}, [copied], [], time.time(), say, uri)
