"""Read a sweep from MLflow's database with SQL on its tables.

MLflow's client takes 2 ms for a run and 30 µs for a point, which is minutes for 10,000 trials. SQL takes seconds
(`benchmarks/load.py`).
"""

from __future__ import annotations

import pandas as pd
import sqlalchemy

from analysis.reading.find_sweep import SweepRun, connect, find_sweep
from analysis.reading.tracking_store import Found, as_points, read_artifact

ACTIVE = "r.lifecycle_stage = 'active'"
TRIALS = """
FROM runs r
JOIN tags p ON p.run_uuid = r.run_uuid AND p.key = 'mlflow.parentRunId' AND p.value = :parent
JOIN tags n ON n.run_uuid = r.run_uuid AND n.key = 'trial'
"""
NOTES = "SELECT value FROM tags WHERE run_uuid = :parent AND key = 'notes'"
FIGURES = "SELECT key, value FROM latest_metrics WHERE run_uuid = :parent AND NOT is_nan"


def read_from_database(uri: str, experiment: str, name: str, keys: list[str]) -> Found:
    """Read the latest sweep with this name, and the histories of the metrics `keys`.

    Raises:
        UserError: There is no such database or sweep.
    """
    with connect(uri) as connection:
        return _read(connection, find_sweep(connection, uri, experiment, name), keys, uri)


def _read(connection: sqlalchemy.Connection, sweep: SweepRun, keys: list[str], uri: str) -> Found:
    parent = sweep.run_id
    runs = _query(
        connection, f"SELECT r.run_uuid AS run_id, r.start_time, r.end_time {TRIALS} WHERE {ACTIVE}", parent=parent
    )
    known = pd.Index(runs.run_id)
    points = {}
    for key in keys:
        text = f"SELECT m.run_uuid, m.step, m.value {TRIALS} JOIN metrics m ON m.run_uuid = r.run_uuid "
        text += "AND m.key = :key AND NOT m.is_nan"
        rows = connection.execute(sqlalchemy.text(text), {"parent": parent, "key": key}).fetchall()
        points[key] = as_points([(row[0], row[1], row[2]) for row in rows], known)
    return Found(
        parent,
        sweep.state,
        read_artifact(f"{sweep.artifact_uri}/space.yaml", uri),
        runs.set_index("run_id"),
        _read_wide(connection, "tags", parent).reindex(known),
        _read_wide(connection, "params", parent).reindex(known),
        points,
        {row[0]: float(row[1]) for row in connection.execute(sqlalchemy.text(FIGURES), {"parent": parent})},
        connection.execute(sqlalchemy.text(NOTES), {"parent": parent}).scalar() or "",
    )


def _read_wide(connection: sqlalchemy.Connection, table: str, parent: str) -> pd.DataFrame:
    """A row for each run, a column for each key."""
    text = f"SELECT m.run_uuid AS run_id, m.key, m.value {TRIALS} JOIN {table} m ON m.run_uuid = r.run_uuid"
    return _query(connection, text, parent=parent).pivot(index="run_id", columns="key", values="value")


def _query(connection: sqlalchemy.Connection, text: str, **values: str) -> pd.DataFrame:
    return pd.read_sql_query(sqlalchemy.text(text), connection, params=values)
