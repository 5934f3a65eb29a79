"""Opening an MLflow store: quick to say that a server is away, quiet, and ready before any trial starts."""

from __future__ import annotations

import logging
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROBE_SECONDS = 5.0
# Our own thread retries, and asks first whether the lost request arrived; MLflow's retries would create a run twice.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
OUTAGES = (
    "INTERNAL_ERROR",
    "TEMPORARILY_UNAVAILABLE",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
)


@dataclass(frozen=True)
class Store:
    client: MlflowClient
    experiment_id: str


def open_store(uri: str, experiment: str) -> Store:
    """The store at an address, with the experiment; both are made where they are missing.

    Raises:
        UserError: the server does not answer, or the experiment was deleted.
    """
    if uri.startswith(("http://", "https://")):
        _probe(uri)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return Store(client, client.create_experiment(experiment, _artifact_location(uri, experiment)))
    if found.lifecycle_stage != "active":
        raise UserError(f"--experiment {experiment}: it was deleted in MLflow. Restore it there or name another.")
    return Store(client, found.experiment_id)


def is_outage(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in OUTAGES
    return isinstance(error, OSError)


def _probe(uri: str) -> None:
    """Ask before mlflow is imported: its own client takes seconds to import and minutes to give up."""
    away = f"--tracking-uri {uri}: the MLflow server does not answer"
    out = "Start it, or name another; without one, runs go to sqlite:///mlflow.db."
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise UserError(f"{away}: HTTP status {error.code}. {out}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{away}: {reason}. {out}") from None


def _artifact_location(uri: str, experiment: str) -> str | None:
    """Beside an SQLite file, wherever the driver runs; a server knows by itself."""
    if not uri.startswith("sqlite:///"):
        return None
    folder = Path(uri.removeprefix("sqlite:///").partition("?")[0]).parent / "mlruns"
    return (folder / "".join(c if c.isalnum() or c in "-_." else "_" for c in experiment)).as_uri()
