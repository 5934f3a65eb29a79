"""What others than its driver write to a sweep's own run in MLflow: results, notes, exports, and requests to the driver."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.reading.remote import RemoteSweep, RunStore, open_experiments
from analysis.reading.store import artifact_errors
from ledger.events import AnyRequest, encode
from ledger.formatting import mask_secrets
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.tracking.run import compressed, describe_refusal, to_milliseconds
from search.tracking.sweep_runs import LONGEST_TAG, NOTES, REQUEST, STOP, join_notes
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

EXPORT = "export"  # an artifact of a sweep's run


class FilesRefused(UserError):
    """The place of a run's artifacts takes no files from this machine; the store takes everything else."""


@contextmanager
def _sending_files(opened: RunStore, run_id: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - each kind of place has its own
        why = describe_refusal(opened.client, run_id, error, "Everything else has arrived.")
        raise FilesRefused(f"MLflow takes no files: {why}") from None


def _open_own(settings: Settings) -> AbstractContextManager[RunStore]:
    """Open the experiment that a sweep is logged to, whatever the variables of this process name."""
    return open_experiments(settings.tracking_uri, settings.experiment)


def log_results(
    record: SweepRecord,
    metrics: Mapping[str, float],
    files: Sequence[Path],
    sentences: Sequence[str],
    stamp: float,
    console: Console,
    uri: str | None = None,
) -> None:
    """Log to the sweep's own run, with sentences as its description.

    If MLflow does not answer, or may not be asked, a line is printed and nothing fails: the files have the same content.
    Logging again with the same `stamp`, in seconds since 1970, changes nothing. `uri` is the store, if it
    is not that of the sweep's settings.
    """
    from mlflow.entities import Metric

    try:
        with open_experiments(uri) if uri else _open_own(record.settings) as opened:
            if (run_id := opened.find_own_run(record.header.id)) is None:
                console.print("MLflow does not have this sweep's run; the results are only in its folder.")
                return
            entries = [Metric(name, value, to_milliseconds(stamp), 0) for name, value in metrics.items()]
            opened.client.log_batch(run_id, metrics=entries, synchronous=True)
            if sentences:
                opened.client.set_tag(run_id, "mlflow.note.content", "\n\n".join(sentences)[:5000])
            with _sending_files(opened, run_id):
                for file in files:
                    opened.client.log_artifact(run_id, str(file))
    except FilesRefused as refused:
        console.print(f"! {refused}", markup=False)
    except (UserError, OSError) as error:
        console.print(f"! MLflow does not get the results. {error}", markup=False)


def send_notes(record: SweepRecord, settings: Settings) -> bool:
    """Write the notes and the ledger of a sweep that is not running to its own run. Returns False without an answer."""
    try:
        with _open_own(settings) as opened:
            if run_id := opened.find_own_run(record.header.id):
                opened.client.set_tag(run_id, NOTES, join_notes([note.text for note in record.notes]))
                with suppress(FilesRefused), _sending_files(opened, run_id), compressed(record.folder.ledger) as packed:
                    opened.client.log_artifact(run_id, str(packed))
    except (UserError, OSError):
        return False
    return True


def fetch_export(uri: str, name: str, out: Path) -> None:
    """Copy the export that `sweep run --publish` attached to the sweep's run."""
    with open_experiments(uri) as opened, tempfile.TemporaryDirectory() as folder:
        sweep = opened.find(name)
        with artifact_errors(uri, EXPORT):
            if has_export := opened.has(sweep, EXPORT):
                fetched = opened.client.download_artifacts(sweep.run.info.run_id, EXPORT, folder)
                shutil.copytree(fetched, out, dirs_exist_ok=True)
        if not has_export:
            raise UserError(
                f"{name}: its run in {mask_secrets(uri)} has no export. A sweep that `sweep submit` or `sweep run "
                "--publish` started has one when it has ended; else export it where its storage folder is."
            )


def publish_export(record: SweepRecord, folder: Path) -> None:
    """Attach an export to the sweep's run."""
    with _open_own(record.settings) as opened:
        if run_id := opened.find_own_run(record.header.id):
            with _sending_files(opened, run_id):
                opened.client.log_artifacts(run_id, str(folder), EXPORT)


def request_stop(uri: str, name: str) -> None:
    """Ask the driver of a sweep to end it; it looks for such a request every few seconds."""
    with open_experiments(uri) as opened:
        opened.client.set_tag(_find_running(opened, name).run.info.run_id, STOP, "yes")


def send_request(uri: str, name: str, event: AnyRequest) -> None:
    """Leave a request for the driver of a running sweep; it looks for one every few seconds."""
    text = encode(event).decode()
    if len(text) > LONGEST_TAG:
        raise UserError(
            f"{name}: the recipe has {len(text):,} characters, and a tag in MLflow at most {LONGEST_TAG:,}. Add it where the "
            "storage folder of the sweep is."
        )
    with open_experiments(uri) as opened:
        opened.client.set_tag(_find_running(opened, name).run.info.run_id, f"{REQUEST}{event.request}", text)


def _find_running(opened: RunStore, name: str) -> RemoteSweep:
    sweep = opened.find(name)
    if sweep.state != "running":
        raise UserError(f"{name} is not running: its state in {mask_secrets(opened.uri)} is {sweep.state}.")
    return sweep
