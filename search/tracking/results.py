"""Log results that are computed after the trials, as metrics and files of the sweep's run in MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search.core.record import SweepRecord
from search.tracking.entries import to_milliseconds
from search.tracking.mlflow_store import is_outage, open_store
from search.tracking.sweep_runs import NOTES, join_notes

if TYPE_CHECKING:
    from rich.console import Console

    from search.tracking.mlflow_store import Store


def log_results(
    record: SweepRecord,
    metrics: Mapping[str, float],
    files: Sequence[Path],
    sentences: Sequence[str],
    stamp: float,
    console: Console,
) -> None:
    """Log to the sweep's own run, with sentences as its description.

    If MLflow does not answer, a line is printed and nothing fails: the files have the same content.

    Args:
        record: The sweep.
        metrics: Values by name.
        files: Files to attach.
        sentences: The description, one paragraph for each.
        stamp: Time of the metrics in seconds since 1970; logging again with the same time changes nothing.
        console: Prints the line.
    """
    from mlflow.entities import Metric

    settings, sweep_id = record.settings, record.header.id
    try:
        store = open_store(settings.tracking_uri, settings.experiment)
        if (run_id := find_parent(store, sweep_id)) is None:
            console.print("MLflow does not have this sweep's run; the results are only in its folder.")
            return
        entries = [Metric(name, value, to_milliseconds(stamp), 0) for name, value in metrics.items()]
        store.client.log_batch(run_id, metrics=entries, synchronous=True)
        store.client.set_tag(run_id, "mlflow.note.content", "\n\n".join(sentences)[:5000])
        for file in files:
            store.client.log_artifact(run_id, str(file))
    except Exception as error:
        if not is_outage(error):
            raise
        console.print("MLflow did not answer; the same command sends the results again.")


def send_notes(record: SweepRecord) -> bool:
    """Write the notes of a sweep that is not running to its own run. Returns False if MLflow cannot be reached."""
    settings = record.settings
    try:
        store = open_store(settings.tracking_uri, settings.experiment)
        if run_id := find_parent(store, record.header.id):
            store.client.set_tag(run_id, NOTES, join_notes([note.text for note in record.notes]))
    except Exception as error:
        if not is_outage(error):
            raise
        return False
    return True


def find_parent(store: Store, sweep_id: str) -> str | None:
    """Return the id of a sweep's own run; None if the store does not have it."""
    found = store.client.search_runs(
        [store.experiment_id], f"tags.sweep_id = '{sweep_id}'", order_by=["attributes.start_time ASC"], max_results=100
    )  # it is created before the runs of its trials
    return next((run.info.run_id for run in found if "mlflow.parentRunId" not in run.data.tags), None)
