"""Sweeps that run on other machines, as an MLflow store has them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.formatting import mask_secrets
from analysis.reading.find_sweep import choose
from search.core.record import SweepRecord
from search.storage.events import AnyRequest, encode
from search.storage.folder import SweepFolder
from search.tracking.mlflow_store import Store, make_absolute, open_store, sqlite_file
from search.tracking.sweep_runs import LONGEST_TAG, REQUEST, STOP, TAG
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow.entities import Run

LEDGER, EXPORT = "ledger.jsonl", "export"  # artifacts of a sweep's run
SWEEPS = "tags.sweep != '' AND tags.trial IS NULL"  # the runs of trials have both tags


@dataclass(frozen=True)
class RemoteSweep:
    """A sweep's own run in MLflow."""

    run: Run

    @property
    def name(self) -> str:
        return self.run.data.tags["sweep"]

    @property
    def state(self) -> str:
        """The state of the sweep; `running` also if its driver was killed, because a killed driver cannot write."""
        return self.run.data.tags.get("state", "running")

    @property
    def owner(self) -> str:
        return self.run.data.tags.get("mlflow.user", "")

    @property
    def tags(self) -> Mapping[str, str]:
        tags = self.run.data.tags
        return {name.removeprefix(TAG): value for name, value in tags.items() if name.startswith(TAG)}


def list_sweeps(
    uri: str, experiment: str, owner: str | None = None, tags: Mapping[str, str] | None = None
) -> list[RemoteSweep]:
    """Return the sweeps of an experiment, the latest first, with this owner and these tags.

    Raises:
        UserError: the store cannot be read.
    """
    with _opened(uri, experiment) as store:
        found = [RemoteSweep(run) for run in _search(store)]
    wanted = tags or {}
    return [sweep for sweep in found if owner in (None, sweep.owner) and wanted.items() <= dict(sweep.tags).items()]


def fetch_record(uri: str, experiment: str, name: str) -> SweepRecord:
    """Read the latest sweep with this name from the ledger that its driver copies to MLflow.

    Raises:
        UserError: there is no such sweep, or its run has no ledger.
    """
    with tempfile.TemporaryDirectory() as folder:
        return SweepRecord.open(fetch_ledger(uri, experiment, name, Path(folder)))


def fetch_ledger(uri: str, experiment: str, name: str, out: Path) -> SweepFolder:
    """Copy the ledger of the latest sweep with this name into `out/NAME`, and return that folder.

    Raises:
        UserError: there is no such sweep, or its run has no ledger.
    """
    with _opened(uri, experiment) as store:
        sweep = _find(store, uri, experiment, name)
        copy = SweepFolder(out / name, known_running=sweep.state == "running")
        copy.path.mkdir(exist_ok=True)
        if not _has(store, sweep, LEDGER):
            raise UserError(
                f"{name}: its run in {mask_secrets(uri)} has no ledger yet. The driver copies it some seconds after the "
                "first trial began; sweeps of earlier versions have none."
            )
        store.client.download_artifacts(sweep.run.info.run_id, LEDGER, str(copy.path))
        return copy


def fetch_export(uri: str, experiment: str, name: str, out: Path) -> None:
    """Copy the export that `sweep run --publish` attached to the sweep's run.

    Raises:
        UserError: there is no such sweep, or it has no export.
    """
    with _opened(uri, experiment) as store, tempfile.TemporaryDirectory() as folder:
        sweep = _find(store, uri, experiment, name)
        if not _has(store, sweep, EXPORT):
            raise UserError(
                f"{name}: its run in {mask_secrets(uri)} has no export. A sweep that `sweep submit` or `sweep run "
                "--publish` started has one when it has ended; else export it where its storage folder is."
            )
        fetched = store.client.download_artifacts(sweep.run.info.run_id, EXPORT, folder)
        shutil.copytree(fetched, out, dirs_exist_ok=True)


def publish_export(record: SweepRecord, folder: Path) -> None:
    """Attach an export to the sweep's run.

    Raises:
        UserError: the store cannot be written.
    """
    from search.tracking.results import find_parent

    settings = record.settings
    with _opened(settings.tracking_uri, settings.experiment) as store:
        if run_id := find_parent(store, record.header.id):
            store.client.log_artifacts(run_id, str(folder), EXPORT)


def request_stop(uri: str, experiment: str, name: str) -> None:
    """Ask the driver of a sweep to end it; it looks for such a request every few seconds.

    Raises:
        UserError: there is no such sweep, or it is not running.
    """
    with _opened(uri, experiment) as store:
        sweep = _find_running(store, uri, experiment, name)
        store.client.set_tag(sweep.run.info.run_id, STOP, "yes")


def send_request(uri: str, experiment: str, name: str, event: AnyRequest) -> None:
    """Leave a request for the driver of a running sweep; it looks for one every few seconds.

    Raises:
        UserError: there is no such sweep, it is not running, or the recipe is too long for a tag.
    """
    text = encode(event).decode()
    if len(text) > LONGEST_TAG:
        raise UserError(
            f"{name}: the recipe has {len(text):,} characters, and a tag in MLflow at most {LONGEST_TAG:,}. Add it where the "
            "storage folder of the sweep is."
        )
    with _opened(uri, experiment) as store:
        sweep = _find_running(store, uri, experiment, name)
        store.client.set_tag(sweep.run.info.run_id, f"{REQUEST}{event.request}", text)


@contextmanager
def _opened(uri: str, experiment: str) -> Iterator[Store]:
    """Open a store that exists. Errors of the store become one sentence."""
    file = sqlite_file(uri)
    if file is not None and not file.exists():
        raise UserError(f"--tracking-uri={uri}: no such database. Name the store to which the sweep logs.")
    from mlflow.exceptions import MlflowException

    try:
        yield open_store(make_absolute(uri), experiment)
    except MlflowException as error:
        reason = mask_secrets(str(error).strip().split("\n")[0])[:200]
        raise UserError(f"--tracking-uri={mask_secrets(uri)}: MLflow reports an error ({reason}).") from None


def _search(store: Store) -> Iterator[Run]:
    """Return the sweeps' own runs, the latest first."""
    token = None
    while True:
        found = store.client.search_runs(
            [store.experiment_id], SWEEPS, order_by=["attributes.start_time DESC"], page_token=token
        )
        yield from found
        if not (token := found.token):
            return


def _find(store: Store, uri: str, experiment: str, name: str) -> RemoteSweep:
    return choose([RemoteSweep(run) for run in _search(store)], name, uri, experiment)


def _find_running(store: Store, uri: str, experiment: str, name: str) -> RemoteSweep:
    sweep = _find(store, uri, experiment, name)
    if sweep.state != "running":
        raise UserError(f"{name} is not running: its state in {mask_secrets(uri)} is {sweep.state}.")
    return sweep


def _has(store: Store, sweep: RemoteSweep, artifact: str) -> bool:
    return any(file.path == artifact for file in store.client.list_artifacts(sweep.run.info.run_id))
