"""Read a sweep from an MLflow server through its REST interface."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pandas as pd

from analysis.formatting import mask_secrets
from analysis.reading.find_sweep import SweepRun, choose
from analysis.reading.tracking_store import Found, as_points, read_artifact
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

# Limits of the server's bulk interface.
RUNS_PER_CALL = 100
POINTS_PER_RUN = 2500


def read_from_server(uri: str, experiment: str, name: str, keys: list[str]) -> Found:
    """Read the latest sweep with this name, and the histories of the metrics `keys`.

    Raises:
        UserError: The server does not answer, or there is no such sweep.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # By default MLflow tries for minutes.
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(uri)
    try:
        found = client.get_experiment_by_name(experiment)
        runs = list(_search(client, found.experiment_id, f"tags.sweep = '{name}'")) if found and "'" not in name else []
        sweeps = _list_sweeps(runs)
        if found and not sweeps:  # for the error, which lists the names that exist
            sweeps = _list_sweeps(_search(client, found.experiment_id, "tags.sweep != ''"))
    except MlflowException as error:
        shown = mask_secrets(uri)
        raise UserError(
            f"--tracking-uri {shown}: the server does not answer ({mask_secrets(str(error))[:100]})."
        ) from None
    sweep = choose(sweeps, name, uri, experiment)
    own = next(run.data for run in runs if run.info.run_id == sweep.run_id)
    trials = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == sweep.run_id]
    trials = [run for run in trials if "trial" in run.data.tags]
    known = pd.Index([run.info.run_id for run in trials])
    times = {name: [getattr(run.info, name) for run in trials] for name in ("start_time", "end_time")}
    return Found(
        sweep.run_id,
        sweep.state,
        read_artifact(f"runs:/{sweep.run_id}/space.yaml", uri),
        pd.DataFrame(times, index=known, dtype=float),
        pd.DataFrame([run.data.tags for run in trials], index=known),
        pd.DataFrame([run.data.params for run in trials], index=known),
        {key: as_points(list(_history(client, list(known), key)), known) for key in keys},
        dict(own.metrics),
        own.tags.get("notes", ""),
    )


def _list_sweeps(runs: Iterable[Run]) -> list[SweepRun]:
    """The runs that belong to sweeps and not to trials, the latest first."""
    tops = [run for run in runs if "sweep_id" in run.data.tags and "mlflow.parentRunId" not in run.data.tags]
    tops.sort(key=lambda run: -run.info.start_time)
    return [
        SweepRun(run.info.run_id, run.data.tags["sweep"], run.data.tags.get("state", ""))
        for run in tops
        if "sweep" in run.data.tags
    ]


def _search(client: MlflowClient, experiment_id: str, condition: str) -> Iterator[Run]:
    token = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _history(client: MlflowClient, ids: list[str], key: str) -> Iterator[tuple[str, int, float]]:
    """The points of one metric of many runs, a hundred runs in each call, as MLflow's own UI reads them."""
    from mlflow.utils.rest_utils import http_request

    credentials = client._tracking_client.store.get_host_creds()
    for first in range(0, len(ids), RUNS_PER_CALL):
        params = {"run_ids": ids[first : first + RUNS_PER_CALL], "metric_key": key, "max_results": POINTS_PER_RUN}
        path = "/api/2.0/mlflow/metrics/get-history-bulk-interval"
        answer = http_request(credentials, path, "GET", params=params)
        answer.raise_for_status()
        for point in answer.json().get("metrics", []):
            yield point["run_id"], int(point.get("step", 0)), float(point["value"])
