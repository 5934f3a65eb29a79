"""One run in MLflow, and what it has already."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search.mlflow_store import is_outage

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

METRICS, PARAMS = 800, 100  # in a call; MLflow takes 1000 of everything
logger = logging.getLogger("search")


@dataclass
class Run:
    """Brings one run up to date. Every call may be repeated after a failure: nothing is stored twice."""

    client: MlflowClient
    id: str
    name: str
    params: int = 0  # how many
    reports: int = 0  # how many, of those that this driver knows
    state: str = "running"
    status: str = "RUNNING"
    reason: str = ""
    end_time: int | None = None
    refused: int = 0

    def describe(self, params: dict[str, Any], file: str, make_text: Callable[[], str]) -> None:
        """Once: parameters and the file they come from; the file first, so that parameters say that both are there."""
        from mlflow.entities import Param

        if self.params >= max(1, len(params)):
            return
        self.log_text(file, make_text())
        entries = [Param(name, str(value)[:6000]) for name, value in params.items()]
        for first in range(0, len(entries), PARAMS):
            self._log(params=entries[first : first + PARAMS])
        self.params = max(1, len(params))

    def log_metrics(self, metrics: list[Metric]) -> None:
        for first in range(0, len(metrics), METRICS):
            self._log(metrics=metrics[first : first + METRICS])

    def log_text(self, file: str, text: str) -> None:
        try:
            self.client.log_text(self.id, text, file)
        except Exception as error:
            if is_outage(error):
                raise
            # A store for artifacts may need credentials of its own; metrics must not wait for them.
            self._note_refusal(error, file)

    def set_state(self, state: str, status: str, reason: str = "", end_time: int | None = None) -> None:
        """Tags, then the status: to be called last, so that a run that has ended has everything."""
        from mlflow.entities import RunTag

        wanted = {"state": state, "reason": reason}
        if tags := [RunTag(key, text[:5000]) for key, text in wanted.items() if text != getattr(self, key)]:
            self._log(tags=tags)
        self.state, self.reason = state, reason
        if status == "RUNNING" and self.status != "RUNNING":
            self.client.update_run(self.id, status)
        elif status != "RUNNING" and (self.status, self.end_time) != (status, end_time):
            self.client.set_terminated(self.id, status, end_time)
        self.status, self.end_time = status, end_time

    def _log(self, **entries: list[Any]) -> None:
        try:
            self.client.log_batch(self.id, **entries, synchronous=True)
        except Exception as error:
            if is_outage(error):
                raise
            self._note_refusal(error, next(iter(entries)))

    def _note_refusal(self, error: Exception, what: str) -> None:
        """Say that MLflow does not take it, and go on."""
        self.refused += 1
        logger.error("MLflow refused %s of trial %s", what, self.name, exc_info=error)
