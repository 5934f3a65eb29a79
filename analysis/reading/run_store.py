"""The runs of sweeps in an MLflow store, read through its public client."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.reading.store import SERVERS, check_database, make_absolute, mlflow_errors, open_client, refuse_deleted
from ledger import EXPERIMENT_VARIABLE
from ledger.formatting import mask_secrets
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

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


@dataclass(frozen=True)
class RunStore:
    """The runs of a store, in some of its experiments."""

    client: MlflowClient
    uri: str
    experiments: Sequence[str]  # their ids

    def search(self, condition: str) -> Iterator[Run]:
        """Return the runs that meet a condition in MLflow's language, the latest first."""
        token = None
        while self.experiments:
            page = self.client.search_runs(
                list(self.experiments),
                condition,
                max_results=1000,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            yield from page
            if not (token := page.token):
                return

    def find(self, name: str) -> RemoteSweep:
        """Return the latest sweep with this name."""
        sweeps = [RemoteSweep(run) for run in self.search(SWEEPS)]
        for sweep in sweeps:
            if sweep.name == name:
                return sweep
        known = ", ".join(dict.fromkeys(sweep.name for sweep in sweeps[:10]))
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
    found, token = [], None
    while True:
        page = client.search_experiments(max_results=1000, page_token=token)
        found += [experiment.experiment_id for experiment in page]
        if not (token := page.token):
            return found
