"""One run in MLflow, and the entries that it has already."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.storage.events import Dataset as DataFacts
from search.tracking.entries import dataset_of
from search.tracking.mlflow_store import is_outage

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

KINDS = ("metrics", "params", "tags")
METRICS, PARAMS = 800, 100  # entries in one call; MLflow accepts 1000 in total
logger = logging.getLogger("search")


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
    end_time: int | None = None
    start_time: int | None = None
    refused: int = 0

    def write(
        self,
        state: str,
        status: str,
        reason: str = "",
        end_time: int | None = None,
        *,
        metrics: Sequence[Metric] = (),
        params: dict[str, Any] | None = None,
    ) -> None:
        """Send entries in as few calls as possible, then the status, so that an ended run is always complete."""
        from mlflow.entities import Param, RunTag

        wanted = {"state": state, "reason": reason}
        tags = [RunTag(key, text[:5000]) for key, text in wanted.items() if text != getattr(self, key)]
        entries = [Param(name, str(value)[:6000]) for name, value in (params or {}).items()]
        for first in range(0, max(len(metrics), len(entries) * METRICS // PARAMS, len(tags)), METRICS):
            part = first // METRICS * PARAMS
            self._log(metrics[first : first + METRICS], entries[part : part + PARAMS], [] if first else tags)
        self.params = max(self.params, len(entries), 1)
        self.state, self.reason = state, reason
        if status == "RUNNING" and self.status != "RUNNING":
            self.client.update_run(self.id, status)
        elif status != "RUNNING" and (self.status, self.end_time) != (status, end_time):
            self.client.set_terminated(self.id, status, end_time)
        self.status, self.end_time = status, end_time

    def log_text(self, file: str, text: str) -> None:
        try:
            self.client.log_text(self.id, text, file)
        except Exception as error:
            if is_outage(error):
                raise
            # A store for artifacts may need its own credentials. Metrics must not depend on them.
            self._note_refusal(error, file)

    def log_file(self, file: Path, folder: str | None = None) -> None:
        """Copy a file to the run's artifacts; an earlier copy is replaced."""
        try:
            self.client.log_artifact(self.id, str(file), folder)
        except Exception as error:
            if is_outage(error):
                raise
            self._note_refusal(error, file.name)

    def log_dataset(self, dataset: DataFacts) -> None:
        """Log the data that the run was trained on. MLflow keeps one entry for all runs."""
        try:
            self.client.log_inputs(self.id, [dataset_of(dataset)])
        except Exception as error:
            if is_outage(error):
                raise
            self._note_refusal(error, "the dataset")

    def _log(self, metrics: Sequence[Metric], params: Sequence[Param], tags: Sequence[RunTag]) -> None:
        """Send all entries in one call. If MLflow refuses it, send each kind alone, so that the others are not lost."""
        kinds = {kind: entries for kind, entries in zip(KINDS, (metrics, params, tags), strict=True) if entries}
        if not kinds:
            return
        try:
            self.client.log_batch(self.id, **kinds, synchronous=True)  # type: ignore[arg-type]
        except Exception as error:
            if is_outage(error):
                raise
            if len(kinds) == 1:
                self._note_refusal(error, next(iter(kinds)))
                return
            self._log(metrics, (), ())
            self._log((), params, ())
            self._log((), (), tags)

    def _note_refusal(self, error: Exception, what: str) -> None:
        """Log that MLflow refused entries, and continue."""
        self.refused += 1
        logger.error("MLflow refused %s of trial %s", what, self.name, exc_info=error)
