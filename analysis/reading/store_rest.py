"""Reads a sweep from an MLflow server through its REST interface."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.reading.find_sweep import choose
from analysis.reading.tracking_store import Found, as_points, read_artifact
from analysis.report.formatting import mask_secrets
from training.errors import UserError

RUNS_PER_CALL = 100  # what the server's bulk interface takes
POINTS_PER_RUN = 2500  # likewise


def read_from_server(uri: str, experiment: str, name: str, keys: list[str]) -> Found:
    """The latest sweep of this name, with the histories of these metrics.

    Raises:
        UserError: the server does not answer, or there is no such sweep.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # its own default is to try for minutes
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(uri)
    try:
        found = client.get_experiment_by_name(experiment)
        runs = list(_search(client, found.experiment_id, f"tags.sweep = '{name}'")) if found and "'" not in name else []
        sweeps = _list_sweeps(runs)
        if found and not sweeps:  # to name those there are
            sweeps = _list_sweeps(_search(client, found.experiment_id, "tags.sweep != ''"))
    except MlflowException as error:
        shown = mask_secrets(uri)
        raise UserError(
            f"--tracking-uri {shown}: the server does not answer ({mask_secrets(str(error))[:100]})."
        ) from None
    sweep = choose(sweeps, name, uri, experiment)
    trials = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == sweep["run_id"]]
    trials = [run for run in trials if "trial" in run.data.tags]
    known = pd.Index([run.info.run_id for run in trials])
    times = {name: [getattr(run.info, name) for run in trials] for name in ("start_time", "end_time")}
    return Found(
        sweep["run_id"],
        sweep["state"],
        read_artifact(f"runs:/{sweep['run_id']}/space.yaml", uri),
        pd.DataFrame(times, index=known, dtype=float),
        pd.DataFrame([run.data.tags for run in trials], index=known),
        pd.DataFrame([run.data.params for run in trials], index=known),
        {key: as_points(list(_history(client, list(known), key)), known) for key in keys},
    )


def _list_sweeps(runs: Iterable[Any]) -> list[dict[str, Any]]:
    """The runs that are a sweep's own, the latest first."""
    tops = [run for run in runs if "sweep_id" in run.data.tags and "mlflow.parentRunId" not in run.data.tags]
    tops.sort(key=lambda run: -run.info.start_time)
    return [
        {"run_id": run.info.run_id, "name": run.data.tags["sweep"], "state": run.data.tags.get("state", "")}
        for run in tops
        if "sweep" in run.data.tags
    ]


def _search(client: Any, experiment_id: str, condition: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _history(client: Any, ids: list[str], key: str) -> Iterator[tuple[str, int, float]]:
    """The points of one metric of many runs, a hundred runs a call, as MLflow's own UI reads them."""
    from mlflow.utils.rest_utils import http_request

    credentials = client._tracking_client.store.get_host_creds()
    for first in range(0, len(ids), RUNS_PER_CALL):
        params = {"run_ids": ids[first : first + RUNS_PER_CALL], "metric_key": key, "max_results": POINTS_PER_RUN}
        path = "/api/2.0/mlflow/metrics/get-history-bulk-interval"
        answer = http_request(credentials, path, "GET", params=params)
        answer.raise_for_status()
        for point in answer.json().get("metrics", []):
            yield point["run_id"], int(point.get("step", 0)), float(point["value"])
