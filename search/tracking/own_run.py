"""What others than its driver write to a sweep's own run in MLflow: results and exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from analysis.reading.run_store import RunStore, open_experiments
from ledger.record import SweepRecord
from search.tracking.run import describe_refusal, to_milliseconds
from training.errors import UserError

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


def log_results(
    record: SweepRecord,
    metrics: Mapping[str, float],
    files: Sequence[Path],
    sentences: Sequence[str],
    stamp: float,
    say: Callable[[str], object],
    uri: str | None = None,
) -> None:
    """Log to the sweep's own run, with sentences as its description.

    If MLflow does not answer, or may not be asked, `say` gets a line and nothing fails: the files have the same content.
    Logging again with the same `stamp`, in seconds since 1970, changes nothing. `uri` is the store, if it
    is not that of the sweep's settings.
    """
    from mlflow.entities import Metric

    try:
        where = [uri] if uri else [record.settings.tracking_uri, record.settings.experiment]
        with open_experiments(*where) as opened:
            if (run_id := opened.find_own_run(record.header.id)) is None:
                say("MLflow does not have this sweep's run; the results are only in its folder.")
                return
            entries = [Metric(name, value, to_milliseconds(stamp), 0) for name, value in metrics.items()]
            opened.client.log_batch(run_id, metrics=entries, synchronous=True)
            if sentences:
                opened.client.set_tag(run_id, "mlflow.note.content", "\n\n".join(sentences)[:5000])
            with _sending_files(opened, run_id):
                for file in files:
                    opened.client.log_artifact(run_id, str(file))
    except FilesRefused as refused:
        say(f"! {refused}")
    except (UserError, OSError) as error:
        say(f"! MLflow does not get the results. {error}")


def publish_export(record: SweepRecord, folder: Path) -> None:
    """Attach an export to the sweep's run."""
    with open_experiments(record.settings.tracking_uri, record.settings.experiment) as opened:
        if run_id := opened.find_own_run(record.header.id):
            with _sending_files(opened, run_id):
                opened.client.log_artifacts(run_id, str(folder), EXPORT)
