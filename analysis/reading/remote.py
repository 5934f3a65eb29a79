"""Sweeps that run on other machines, as an MLflow store has them: their ledgers are artifacts of their runs."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.reading.store import (
    SERVERS,
    artifact_errors,
    check_database,
    make_absolute,
    mlflow_errors,
    open_client,
    refuse_deleted,
)
from ledger.events import encode
from ledger.file import first_line
from ledger.folder import SweepFolder
from ledger.formatting import mask_secrets
from ledger.record import SweepRecord
from training.errors import UserError
from training.process.text_files import refuse_irregular

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LEDGER, PLAIN_LEDGER = (
    "ledger.jsonl.gz",
    "ledger.jsonl",
)  # artifacts of a sweep's run; the first versions wrote the second
GZIP = b"\x1f\x8b"  # the first bytes of a compressed file (RFC 1952, section 2.3.1)
SWEEPS = "tags.sweep != '' AND tags.trial IS NULL"  # the runs of trials have both tags
TAG = "tag."  # begins the names of tags that the user gave


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


@dataclass(frozen=True)
class Experiment:
    """The runs of one experiment in a store."""

    client: MlflowClient
    uri: str
    name: str
    id: str | None  # None if the store does not have it

    def search(self, condition: str) -> Iterator[Run]:
        """Return the runs that meet a condition in MLflow's language, the latest first."""
        token = None
        while self.id is not None:
            page = self.client.search_runs(
                [self.id], condition, max_results=1000, order_by=["attributes.start_time DESC"], page_token=token
            )
            yield from page
            if not (token := page.token):
                return

    def find(self, name: str) -> RemoteSweep:
        """Return the latest sweep with this name.

        Raises:
            UserError: there is none.
        """
        sweeps = [RemoteSweep(run) for run in self.search(SWEEPS)]
        for sweep in sweeps:
            if sweep.name == name:
                return sweep
        known = ", ".join(dict.fromkeys(sweep.name for sweep in sweeps[:10]))
        hint = f"There are: {known}." if known else f"There are none in the experiment {self.name}."
        raise UserError(f"{name}: no such sweep in {mask_secrets(self.uri)}. {hint}")

    def find_own_run(self, sweep_id: str) -> str | None:
        """Return the id of the run of the sweep itself, which is created before those of its trials; None if missing."""
        runs = reversed(list(self.search(f"tags.sweep_id = '{sweep_id}'")))
        return next((run.info.run_id for run in runs if "mlflow.parentRunId" not in run.data.tags), None)

    def has(self, sweep: RemoteSweep, artifact: str) -> bool:
        """Return whether a sweep's run has this file or folder."""
        return any(file.path == artifact for file in self.client.list_artifacts(sweep.run.info.run_id))


@contextmanager
def open_experiment(uri: str, name: str) -> Iterator[Experiment]:
    """Open an experiment of a store that exists; nothing is created. Errors of the store become one sentence.

    Raises:
        UserError: the store cannot be read, or the experiment was deleted.
    """
    if not uri.startswith(SERVERS):
        check_database(uri)
    client = open_client(make_absolute(uri))
    with mlflow_errors(uri):
        experiment = client.get_experiment_by_name(name)
        if experiment is not None:
            refuse_deleted(experiment.lifecycle_stage, name)
        yield Experiment(client, uri, name, experiment.experiment_id if experiment else None)


def list_sweeps(
    uri: str, experiment: str, owner: str | None = None, tags: Mapping[str, str] | None = None
) -> list[RemoteSweep]:
    """Return the sweeps of an experiment, the latest first, with this owner and these tags.

    Raises:
        UserError: the store cannot be read.
    """
    with open_experiment(uri, experiment) as opened:
        sweeps = [RemoteSweep(run) for run in opened.search(SWEEPS)]
    wanted = tags or {}
    return [sweep for sweep in sweeps if owner in (None, sweep.owner) and wanted.items() <= dict(sweep.tags).items()]


def fetch_record(uri: str, experiment: str, name: str) -> SweepRecord:
    """Read the latest sweep with this name from the ledger that its driver copies to MLflow.

    Raises:
        UserError: there is no such sweep, or it cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        return SweepRecord.open(fetch_ledger(uri, experiment, name, Path(folder)), only_shown=True)


def fetch_ledger(uri: str, experiment: str, name: str, out: Path) -> SweepFolder:
    """Copy the ledger of the latest sweep with this name into `out/NAME`, and return that folder.

    If its run has none, as in the first seconds of a sweep and in those of earlier versions, it is rebuilt from the runs.

    Raises:
        UserError: there is no such sweep, or it cannot be read.
    """
    with open_experiment(uri, experiment) as opened:
        sweep = opened.find(name)
        copy = SweepFolder(out / name, known_running=sweep.state == "running")
        copy.path.mkdir(exist_ok=True)
        with artifact_errors(uri, LEDGER):
            artifact = next((file for file in (LEDGER, PLAIN_LEDGER) if opened.has(sweep, file)), None)
            if artifact is None:
                copy.ledger.write_bytes(_rebuild_ledger(opened, sweep))
                return copy
            fetched = Path(opened.client.download_artifacts(sweep.run.info.run_id, artifact, str(copy.path)))
            refuse_irregular(fetched)
            content = fetched.read_bytes()
            # Some stores mark the file as compressed, and then the client has unpacked it already.
            copy.ledger.write_bytes(gzip.decompress(content) if content.startswith(GZIP) else content)
        return copy


def _rebuild_ledger(opened: Experiment, sweep: RemoteSweep) -> bytes:
    """Return the ledger of a sweep whose run has none, as in its first seconds and in those of earlier versions."""
    from analysis.reading.runs import rebuild_events

    lines = [first_line(sweep.run.info.start_time / 1000), *map(encode, rebuild_events(opened, sweep))]
    return b"".join(lines)
