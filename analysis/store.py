"""Reads one sweep out of an MLflow store: by SQL from a database, through the REST interface from a server.

MLflow's client takes 2 ms for a run and 30 µs for a point; SQL on its tables takes a tenth (`benchmarks/load.py`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pandas as pd

from training.errors import UserError

ALWAYS = ("score", "standard_error", "best_epoch")
RUNS_PER_CALL = 100  # what the server's bulk interface takes
POINTS_PER_RUN = 2500  # likewise
Points = tuple[Any, np.ndarray, np.ndarray]  # run ids, steps, values


@dataclass(frozen=True)
class Found:
    """A sweep as MLflow has it. Frames are indexed by the run ids of its trials; times are in milliseconds."""

    run_id: str
    state: str
    space: str
    runs: pd.DataFrame  # start_time, end_time
    tags: pd.DataFrame
    params: pd.DataFrame
    points: dict[str, Points]


def read_sweep(uri: str, experiment: str, name: str, metrics: Sequence[str]) -> Found:
    """The latest sweep of this name, with the history of its score and of these metrics.

    Raises:
        UserError: there is no such store, experiment or sweep.
    """
    keys = list(dict.fromkeys([*ALWAYS, *metrics]))
    if uri.startswith(("http://", "https://")):
        return _read_from_server(uri, experiment, name, keys)
    return _read_from_database(uri, experiment, name, keys)


SWEEPS = """
SELECT r.run_uuid AS run_id, r.artifact_uri, t.value AS name, i.value AS sweep_id, s.value AS state
FROM runs r
JOIN experiments e ON e.experiment_id = r.experiment_id
JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = 'sweep'
JOIN tags i ON i.run_uuid = r.run_uuid AND i.key = 'sweep_id'
JOIN tags s ON s.run_uuid = r.run_uuid AND s.key = 'state'
LEFT JOIN tags p ON p.run_uuid = r.run_uuid AND p.key = 'mlflow.parentRunId'
WHERE e.name = :experiment AND r.lifecycle_stage = 'active' AND p.value IS NULL
ORDER BY r.start_time DESC
"""
CHILDREN = """
FROM runs r
JOIN tags p ON p.run_uuid = r.run_uuid AND p.key = 'mlflow.parentRunId' AND p.value = :parent
JOIN tags n ON n.run_uuid = r.run_uuid AND n.key = 'trial'
"""


def _read_from_database(uri: str, experiment: str, name: str, keys: list[str]) -> Found:
    import sqlalchemy

    file = uri.removeprefix("sqlite:///").partition("?")[0]
    if uri.startswith("sqlite:") and not Path(file).exists():
        raise UserError(f"--tracking-uri {uri}: no such database. Run this where the sweep was started, or name it.")
    try:
        engine = sqlalchemy.create_engine(uri)
    except (sqlalchemy.exc.ArgumentError, ModuleNotFoundError) as error:
        raise UserError(f"--tracking-uri {uri}: not a database ({str(error).splitlines()[0]}).") from None
    try:
        with engine.connect() as connection:

            def query(text: str, **values: Any) -> pd.DataFrame:
                return pd.read_sql_query(sqlalchemy.text(text), connection, params=values)

            sweeps = query(SWEEPS, experiment=experiment)
            sweep = _choose(sweeps.to_dict("records"), name, uri, experiment)
            parent = sweep["run_id"]
            active = "AND r.lifecycle_stage = 'active'"
            runs = query(f"SELECT r.run_uuid AS run_id, r.start_time, r.end_time {CHILDREN} {active}", parent=parent)
            long = {
                table: query(
                    f"SELECT m.run_uuid AS run_id, m.key, m.value {CHILDREN} JOIN {table} m ON m.run_uuid = r.run_uuid",
                    parent=parent,
                )
                for table in ("tags", "params")
            }
            known = pd.Index(runs.run_id)
            points = {}
            for key in keys:
                text = "SELECT m.run_uuid, m.step, m.value, m.is_nan "
                text += f"{CHILDREN} JOIN metrics m ON m.run_uuid = r.run_uuid AND m.key = :key"
                rows = connection.execute(sqlalchemy.text(text), {"parent": parent, "key": key}).fetchall()
                points[key] = _as_points([row for row in rows if not row[3]], known)
    except sqlalchemy.exc.DBAPIError as error:
        raise UserError(f"--tracking-uri {uri}: no MLflow store ({str(error.orig).splitlines()[0]}).") from None
    finally:
        engine.dispose()
    wide = {table: rows.pivot(index="run_id", columns="key", values="value") for table, rows in long.items()}
    tags, params = (wide[table].reindex(known) for table in ("tags", "params"))
    space = _read_artifact(f"{sweep['artifact_uri']}/space.yaml", uri)
    return Found(parent, sweep["state"], space, runs.set_index("run_id"), tags, params, points)


def _as_points(rows: Sequence[Any], known: pd.Index) -> Points:
    ids = np.array([row[0] for row in rows], dtype=object)
    inside = known.get_indexer(ids) >= 0
    steps = np.array([row[1] for row in rows], dtype=int)
    values = np.array([row[2] for row in rows], dtype=float)
    return ids[inside], steps[inside], values[inside]


def _read_from_server(uri: str, experiment: str, name: str, keys: list[str]) -> Found:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # its own default is to try for minutes
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    client = MlflowClient(uri)
    try:
        found = client.get_experiment_by_name(experiment)
        ids = [found.experiment_id] if found else []
        top = list(_search(client, ids, "tags.sweep != ''")) if ids else []
    except MlflowException as error:
        raise UserError(f"--tracking-uri {uri}: the server does not answer ({str(error)[:100]}).") from None
    sweeps = [
        {"run_id": run.info.run_id, "name": run.data.tags["sweep"], "artifact_uri": run.info.artifact_uri}
        | {"state": run.data.tags.get("state", ""), "sweep_id": run.data.tags.get("sweep_id")}
        for run in top
        if "mlflow.parentRunId" not in run.data.tags and "sweep_id" in run.data.tags
    ]
    sweep = _choose(sweeps, name, uri, experiment)
    children = _search(client, ids, f"tags.`mlflow.parentRunId` = '{sweep['run_id']}'")
    trials = [run for run in children if "trial" in run.data.tags]
    known = pd.Index([run.info.run_id for run in trials])
    times = pd.DataFrame([(run.info.start_time, run.info.end_time) for run in trials], index=known)
    return Found(
        sweep["run_id"],
        sweep["state"],
        _read_artifact(f"runs:/{sweep['run_id']}/space.yaml", uri),
        times.set_axis(["start_time", "end_time"], axis=1).astype(float),
        pd.DataFrame([run.data.tags for run in trials], index=known),
        pd.DataFrame([run.data.params for run in trials], index=known),
        {key: _as_points(list(_history(client, list(known), key)), known) for key in keys},
    )


def _search(client: Any, experiments: list[str], condition: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs(experiments, condition, max_results=1000, page_token=token)
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


def _choose(sweeps: list[dict[str, Any]], name: str, uri: str, experiment: str) -> dict[str, Any]:
    """The latest of this name."""
    for sweep in sweeps:
        if sweep["name"] == name:
            return sweep
    known = ", ".join(dict.fromkeys(str(sweep["name"]) for sweep in sweeps[:10]))
    hint = f"There are: {known}." if known else f"There are none in the experiment {experiment}."
    raise UserError(f"{name}: no such sweep in {uri}. {hint}")


def _read_artifact(address: str, uri: str) -> str:
    if address.startswith("file:"):
        return Path(url2pathname(urlparse(address).path)).read_text()
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow

    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    before = mlflow.get_tracking_uri()
    try:
        if address.startswith("runs:"):
            mlflow.set_tracking_uri(uri)
        return str(mlflow.artifacts.load_text(address))
    finally:
        mlflow.set_tracking_uri(before)
