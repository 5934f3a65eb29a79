"""One run in MLflow, the entries that it has already, and what becomes an entry."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.events import Dataset, EpochReported
from ledger.formatting import mask_secrets
from ledger.trials import Trials
from search.tracking.mlflow_store import is_outage
from training.errors import describe_error

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Metric, Param, RunTag

PAGE = "report.html"  # the artifact of the sweep's run
METRICS, PARAMS = 800, 100  # entries in one call; MLflow accepts 1000 in total
# Errors of a folder on this machine, which no answer of a server raises.
LOCAL = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
LOCAL |= {errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG}
MOST_FAILURES = 3  # of other kinds, such as a fault of the server that keeps the artifacts
logger = logging.getLogger("search")

STATUS = {
    "running": "RUNNING",
    "completed": "FINISHED",
    "stopped": "FINISHED",
    "diverged": "FINISHED",
    "out_of_memory": "FAILED",
    "failed": "FAILED",
    "interrupted": "KILLED",  # the run is reopened when the trial continues
}


@dataclass
class ArtifactPlace:
    """Whether the place of the artifacts takes files; the runs of a sweep share it, so that a refusal is said once.

    A server without `--serve-artifacts` names a folder of its own machine, for example, which this one cannot write.
    """

    is_refused: bool = False
    failures: int = 0  # in a row, while the server answered other requests

    def refuses(self, error: Exception, client: MlflowClient, run: str) -> bool:
        """Return whether an error is of this place alone, so that the same request would fail again."""
        if not is_outage(error) or (isinstance(error, OSError) and error.errno in LOCAL):
            return True
        client.get_run(run)  # raises if nothing answers
        self.failures += 1
        return self.failures >= MOST_FAILURES


@dataclass
class Run:
    """Updates one run. Every call may be repeated after a failure: nothing is stored twice."""

    client: MlflowClient
    id: str
    name: str
    params: int = 0  # number of parameters that the run has
    reports: int = 0  # number of reports that this driver has sent
    state: str = "running"
    status: str = "RUNNING"
    reason: str = ""
    host: str = ""
    end_time: int | None = None
    start_time: int | None = None
    refused: int = 0
    is_deleted: bool = False
    artifacts: ArtifactPlace = field(default_factory=ArtifactPlace)

    def write(
        self,
        state: str,
        status: str,
        reason: str = "",
        end_time: int | None = None,
        *,
        metrics: Sequence[Metric] = (),
        params: dict[str, Any] | None = None,
        host: str = "",
    ) -> None:
        """Send entries in as few calls as possible, then the status, so that an ended run is always complete."""
        from mlflow.entities import Param, RunTag

        wanted = {"state": state, "reason": reason, "host": host or self.host}
        tags = [RunTag(key, text[:5000]) for key, text in wanted.items() if text != getattr(self, key)]
        entries = [Param(name, str(value)[:6000]) for name, value in (params or {}).items()]
        for first in range(0, max(len(metrics), len(entries) * METRICS // PARAMS, len(tags)), METRICS):
            part = first // METRICS * PARAMS
            self._log(metrics[first : first + METRICS], entries[part : part + PARAMS], [] if first else tags)
        self.params = max(self.params, len(entries), 1)
        self.state, self.reason, self.host = state, reason, wanted["host"]
        if self.is_deleted:
            return
        with self._refusable("the status"):
            if status == "RUNNING" and self.status != "RUNNING":
                self.client.update_run(self.id, status)
            elif status != "RUNNING" and (self.status, self.end_time) != (status, end_time):
                self.client.set_terminated(self.id, status, end_time)
        self.status, self.end_time = status, end_time

    def log_text(self, file: str, text: str) -> None:
        self._send_file(file, lambda: self.client.log_text(self.id, text, file))

    def log_compressed(self, file: Path) -> None:
        """Copy a file to the run's artifacts, as `NAME.gz`; an earlier copy is replaced."""
        self.log_bytes(f"{file.name}.gz", lambda: gzip.compress(file.read_bytes(), compresslevel=6))

    def log_bytes(self, file: str, read: Callable[[], bytes]) -> None:
        def send() -> None:  # the folder for temporary files may be gone or full too
            with tempfile.TemporaryDirectory() as folder:
                written = Path(folder, file)
                written.write_bytes(read())
                self.client.log_artifact(self.id, str(written))

        self._send_file(file, send)

    def log_dataset(self, dataset: Dataset | None) -> None:
        """Log the data that the run was trained on, if they are known. MLflow keeps one entry for all runs."""
        if dataset is not None:
            with self._refusable("the dataset"):
                self.client.log_inputs(self.id, [dataset_of(dataset)])

    def _log(self, metrics: Sequence[Metric], params: Sequence[Param], tags: Sequence[RunTag]) -> None:
        """Send all entries in one call. If MLflow refuses it, send each kind alone, so that the others are not lost."""
        entries: dict[str, Any] = {"metrics": metrics, "params": params, "tags": tags}
        kinds = {kind: batch for kind, batch in entries.items() if batch}
        try:
            if len(kinds) > 1 and not self.is_deleted:
                self.client.log_batch(self.id, **kinds, synchronous=True)
                return
        except Exception as error:
            if is_outage(error):
                raise
        for kind, batch in kinds.items() if not self.is_deleted else ():
            with self._refusable(kind):
                self.client.log_batch(self.id, **{kind: batch}, synchronous=True)

    def _send_file(self, file: str, send: Callable[[], object]) -> None:
        """Send an artifact, unless one was refused: then no other is sent, and everything else is."""
        if self.artifacts.is_refused or self.is_deleted:
            return
        try:
            send()
            self.artifacts.failures = 0
        except Exception as error:
            if not is_outage(error) and self._was_deleted():
                return
            if not self.artifacts.refuses(error, self.client, self.id):
                raise
            self.refused += 1
            self.artifacts.is_refused = True
            why = describe_refusal(self.client, self.id, error, "Parameters and metrics arrive.")
            logger.error("MLflow does not take %s of %s, nor any other file: %s", file, self.name, why)
            logger.debug("%s", file, exc_info=error)

    @contextmanager
    def _refusable(self, what: str) -> Iterator[None]:
        """Log that MLflow refused entries, and continue."""
        try:
            yield
        except Exception as error:
            if is_outage(error):
                raise
            self.refused += 1
            if not self._was_deleted():
                logger.error("MLflow refused %s of trial %s", what, self.name, exc_info=error)

    def _was_deleted(self) -> bool:
        """Whether somebody deleted the run, which is said once: it then gets nothing more."""
        from mlflow.exceptions import MlflowException

        if self.is_deleted:
            return True
        try:
            self.is_deleted = self.client.get_run(self.id).info.lifecycle_stage == "deleted"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self.is_deleted = True  # also from MLflow's trash
        if self.is_deleted:
            logger.warning("The run of %s was deleted in MLflow: it gets nothing more.", self.name)
        return self.is_deleted


def describe_refusal(client: MlflowClient, run: str, error: Exception, rest: str) -> str:
    """Return why a run takes no file, with a sentence about the rest, and the way out. Raises if nothing answers."""
    place = mask_secrets(str(client.get_run(run).info.artifact_uri))
    return (
        f"its artifacts are in {place}, which cannot be written from here ({mask_secrets(describe_error(error))}). {rest} "
        "Start its server with --serve-artifacts, or name a place that this machine can write to."
    )


def metrics_of(report: EpochReported) -> list[Metric]:
    """Return a report as MLflow metrics, with the time of the report, so that sending it again changes nothing."""
    from mlflow.entities import Metric

    stamp = to_milliseconds(report.time)
    values = report.metrics | {name: getattr(report, name) for name in ("score", "standard_error", "best_epoch")}
    metrics = [Metric(name, value, stamp, report.epoch) for name, value in values.items() if value is not None]
    for step, lr, loss in report.steps:
        metrics += [Metric("step_lr", lr, stamp, step), Metric("step_train_loss", loss, stamp, step)]
    return metrics


def dataset_of(facts: Dataset) -> DatasetInput:
    """Return the description of the data from `training.data.identity` as MLflow's dataset of a run."""
    from mlflow import entities

    counts = {name: value for name, value in facts.items() if name not in ("name", "digest", "content", "source")}
    columns = [
        {"type": "binary", "name": "image", "required": True},
        {"type": "string", "name": "label", "required": True},
    ]
    dataset = entities.Dataset(
        str(facts["name"]),
        str(facts["digest"]),
        source_type="local",
        source=json.dumps({"uri": facts["source"]}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps(counts),
    )
    return entities.DatasetInput(dataset, [entities.InputTag("mlflow.data.context", "training and validation")])


def summary(trials: Trials, stamp: int) -> list[Metric]:
    """Return the sweep's own metrics for MLflow. Their step is the number of trials."""
    from mlflow.entities import Metric

    return [Metric(name, value, stamp, len(trials)) for name, value in trials.figures().items()]


def to_milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
