"""A sweep as read from any MLflow store."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pandas as pd

Points = tuple[np.ndarray, np.ndarray, np.ndarray]  # run ids, steps, values


@dataclass(frozen=True)
class Found:
    """A sweep in MLflow's form. Frames are indexed by the run ids of its trials; times are in milliseconds."""

    run_id: str
    state: str
    space: str
    runs: pd.DataFrame  # start_time, end_time
    tags: pd.DataFrame
    params: pd.DataFrame
    points: dict[str, Points]
    figures: dict[str, float]  # the metrics of the sweep's own run
    notes: str = ""  # the notes of users, one a line


def as_points(rows: Sequence[tuple[str, int, float]], known: pd.Index) -> Points:
    """Points from rows of run id, step and value; rows of runs that are not in `known` are left out."""
    ids = np.array([row[0] for row in rows], dtype=object)
    inside = known.get_indexer(ids) >= 0
    steps = np.array([row[1] for row in rows], dtype=int)
    values = np.array([row[2] for row in rows], dtype=float)
    return ids[inside], steps[inside], values[inside]


def read_artifact(address: str, uri: str) -> str:
    """The text of an artifact.

    Args:
        address: A `file:` address, or an address that MLflow resolves.
        uri: The MLflow store for `runs:` addresses.
    """
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
