"""Opening an MLflow store: quick to say that a server is away, quiet, and ready before any trial starts."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.report.formatting import mask_secrets
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROBE_SECONDS = 5.0
SQLITE = "sqlite:///"
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


class ServerAway(UserError):
    """The MLflow server does not answer; it may later."""


@dataclass(frozen=True)
class Store:
    client: MlflowClient
    experiment_id: str


def open_store(uri: str, experiment: str) -> Store:
    """The store at an address, with the experiment; both are made where they are missing.

    Raises:
        ServerAway: the server does not answer.
        UserError: the experiment was deleted.
    """
    if uri.startswith(("http://", "https://")):
        _probe(uri)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    folder = None
    if file := sqlite_file(uri):
        # Beside the database, wherever the driver runs; a server knows by itself.
        folder = (file.parent / "mlruns" / re.sub(r"[^\w.-]", "_", experiment)).as_uri()
        if not file.exists():
            _make_database(file)
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return Store(client, client.create_experiment(experiment, folder))
    if found.lifecycle_stage != "active":
        raise UserError(f"--experiment {experiment}: it was deleted in MLflow. Restore it there or name another.")
    return Store(client, found.experiment_id)


def make_absolute(uri: str) -> str:
    """An address whose SQLite file no longer depends on the working folder."""
    file = sqlite_file(uri)
    return f"{SQLITE}{file.as_posix()}{''.join(uri.partition('?')[1:])}" if file else uri


def sqlite_file(uri: str) -> Path | None:
    """The absolute path of an address's SQLite file; None for any other address."""
    path = uri.removeprefix(SQLITE).partition("?")[0]
    return Path(path).absolute() if uri.startswith(SQLITE) and path else None


def is_outage(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in OUTAGES
    return isinstance(error, OSError | ServerAway)


def _make_database(file: Path) -> None:
    """Make the tables elsewhere and put them in place at once: a killed driver leaves no half-made database.

    Elsewhere nothing needs to reach the disk between two steps, which is most of the time that it takes.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import Engine, event

    def forget_the_disk(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "mlflow.db")
        event.listen(Engine, "connect", forget_the_disk)
        try:
            store = SqlAlchemyStore(f"{SQLITE}{made.as_posix()}", (file.parent / "mlruns").as_uri())
        finally:
            event.remove(Engine, "connect", forget_the_disk)
        store.engine.dispose()
        copy = file.with_name(f".{file.name}.{os.getpid()}")
        shutil.copy(made, copy)
    try:
        os.link(copy, file)  # fails if another driver was faster, whose database it then is
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(copy, file)
    copy.unlink(missing_ok=True)


def _probe(uri: str) -> None:
    """Ask before mlflow is imported: its own client takes seconds to import and minutes to give up."""
    import requests

    try:
        status = requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS).status_code
    except requests.exceptions.SSLError:
        return  # somebody answers; MLflow has settings of its own for certificates
    except requests.exceptions.Timeout:
        reason = f"nothing within {PROBE_SECONDS:g} seconds"
    except requests.exceptions.RequestException as error:
        reason = _shorten(error)
    else:
        if status < 500:
            return
        reason = f"HTTP status {status}"
    raise ServerAway(
        f"--tracking-uri {mask_secrets(uri)}: the MLflow server does not answer ({reason}). "
        "Start it, or name another; sqlite:///mlflow.db needs no server."
    )


def _shorten(error: Exception) -> str:
    text = str(error)
    for words, reason in {"refused": "connection refused", "resolve": "unknown host"}.items():
        if words in text:
            return reason
    return mask_secrets(text.split("\n")[0])[:200]
