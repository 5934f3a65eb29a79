"""The runs of sweeps in an MLflow store, read through its public client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.reading.store import SERVERS, check_database, make_absolute, mlflow_errors, open_client, refuse_deleted
from ledger import EXPERIMENT_VARIABLE
from ledger.formatting import mask_secrets
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.store.entities import PagedList

SWEEPS = "tags.sweep != '' AND tags.trial IS NULL"  # the runs of trials have both tags


@dataclass(frozen=True)
class RunStore:
    """The runs of a store, in some of its experiments."""

    client: MlflowClient
    uri: str
    experiments: list[str]  # their ids

    def search(self, condition: str) -> Iterator[Run]:
        """Return the runs that meet a condition in MLflow's language, the latest first."""
        if self.experiments:
            order = ["attributes.start_time DESC"]
            yield from _list_all(self.client.search_runs, self.experiments, condition, order_by=order)

    def find(self, name: str) -> Run:
        """Return the own run of the latest sweep with this name."""
        runs = list(self.search(SWEEPS))
        for run in runs:
            if run.data.tags["sweep"] == name:
                return run
        known = ", ".join(dict.fromkeys(run.data.tags["sweep"] for run in runs[:10]))
        narrowed = f" in the experiment {experiment}" if (experiment := os.environ.get(EXPERIMENT_VARIABLE)) else ""
        hint = f"There are: {known}." if known else f"There are none{narrowed}."
        raise UserError(f"{name}: no such sweep in {mask_secrets(self.uri)}. {hint}")

    def find_own_run(self, sweep_id: str) -> str | None:
        """Return the id of the run of the sweep itself, which is created before those of its trials; None if missing."""
        runs = reversed(list(self.search(f"tags.sweep_id = '{sweep_id}'")))
        return next((run.info.run_id for run in runs if "mlflow.parentRunId" not in run.data.tags), None)


@contextmanager
def open_experiments(uri: str, name: str | None = None) -> Iterator[RunStore]:
    """Open a store that exists; nothing is created. Errors of the store become one sentence.

    The runs are those of the experiment `name`, which may be missing; else of `MLFLOW_EXPERIMENT_NAME`, else of all.
    """
    if not uri.startswith(SERVERS):
        check_database(uri)
    client = open_client(make_absolute(uri))
    with mlflow_errors(uri):
        yield RunStore(client, uri, _list_experiments(client, name or os.environ.get(EXPERIMENT_VARIABLE) or None))


def _list_experiments(client: MlflowClient, name: str | None) -> list[str]:
    if name is not None:
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            return []
        refuse_deleted(experiment.lifecycle_stage, name)
        return [experiment.experiment_id]
    return [experiment.experiment_id for experiment in _list_all(client.search_experiments)]


def _list_all(search: Callable[..., PagedList], *values: object, **more: object) -> Iterator[Any]:
    token = None
    while True:
        page = search(*values, **more, max_results=1000, page_token=token)
        yield from page
        if not (token := page.token):
            return
