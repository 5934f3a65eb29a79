"""The rows of `sweep list`."""

from __future__ import annotations

from collections.abc import Iterable

from search.core.record import SweepRecord
from search.core.trials import UNFINISHED
from search.display.tables.sweeps_table import SweepRow
from search.storage.folder import SweepFolder
from training.errors import UserError


def describe_sweeps(folders: Iterable[SweepFolder]) -> tuple[list[SweepRow], list[str]]:
    """Return a row for each sweep, and a sentence for each sweep that is damaged."""
    rows, problems = [], []
    for folder in folders:
        try:
            rows.append(_describe(SweepRecord.open(folder)))
        except UserError as error:
            reason = str(error)
            problems.append(reason if folder.name in reason else f"{folder.name}: {reason}")
    return rows, problems


def _describe(record: SweepRecord) -> SweepRow:
    trials, best = record.trials, record.trials.best()
    ended = sum(trial.state not in UNFINISHED for trial in trials)
    score, error = (best.score, best.standard_error) if best else (None, None)
    started, notes = record.header.time, " · ".join(note.text for note in record.notes)
    return SweepRow(
        record.name, record.state, ended, record.budget, trials.metric, score, error, started, record.folder.path, notes
    )
