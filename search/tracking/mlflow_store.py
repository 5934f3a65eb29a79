"""Open an MLflow store before any trial starts; a server that does not answer is reported within seconds."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.formatting import mask_secrets
from training.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROBE_SECONDS = 5.0
SQLITE = "sqlite:///"
# Our own thread retries, after it has checked whether the lost request arrived. MLflow's retries could create a run
# twice.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
OUTAGES = (
    "INTERNAL_ERROR",
    "TEMPORARILY_UNAVAILABLE",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
)


class ServerAway(UserError):
    """The MLflow server does not answer now, but may answer later."""


@dataclass(frozen=True)
class Store:
    client: MlflowClient
    experiment_id: str


def open_store(uri: str, experiment: str) -> Store:
    """Open the store at an address, and its experiment. Both are created if they are missing.

    Raises:
        ServerAway: the server does not answer.
        UserError: the experiment was deleted.
    """
    if uri.startswith(("http://", "https://")):
        probe_server(uri)
    import_client()
    from mlflow import MlflowClient

    folder = None
    if file := sqlite_file(uri):
        # Artifacts are stored beside the database, whatever the working folder is. A server chooses its own place.
        folder = (file.parent / "mlruns" / re.sub(r"[^\w.-]", "_", experiment)).as_uri()
        if not file.exists():
            _make_database(file)
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return Store(client, client.create_experiment(experiment, folder))
    refuse_deleted(found.lifecycle_stage, experiment)
    return Store(client, found.experiment_id)


def import_client() -> None:
    """Import MLflow's client with our settings; this takes seconds."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import_module("mlflow")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def refuse_deleted(stage: str, experiment: str) -> None:
    """Refuse an experiment that is in MLflow's trash.

    Raises:
        UserError: it was deleted.
    """
    if stage != "active":
        raise UserError(f"--experiment {experiment}: it was deleted in MLflow. Restore it there or name another.")


def make_absolute(uri: str) -> str:
    """Make the path of an SQLite file absolute, so that it does not depend on the working folder."""
    file = sqlite_file(uri)
    return f"{SQLITE}{file.as_posix()}{''.join(uri.partition('?')[1:])}" if file else uri


def sqlite_file(uri: str) -> Path | None:
    """Return the absolute path of an address's SQLite file; None for any other address."""
    path = uri.removeprefix(SQLITE).partition("?")[0]
    return Path(path).absolute() if uri.startswith(SQLITE) and path else None


def is_outage(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in OUTAGES
    return isinstance(error, OSError | ServerAway)


def _make_database(file: Path) -> None:
    """Create the database in a temporary folder, then move it: a killed driver leaves no incomplete database.

    In the temporary folder SQLite need not wait for the disk, which otherwise takes most of the time.
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
        os.link(copy, file)  # fails if another driver was faster; its database is then used
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(copy, file)
    copy.unlink(missing_ok=True)


def probe_server(uri: str) -> None:
    """Check a server before mlflow is imported, since that takes seconds and its client gives up after minutes."""
    import requests

    try:
        status = requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS).status_code
    except requests.exceptions.SSLError:
        return  # a server answers; MLflow has its own settings for certificates
    except requests.exceptions.Timeout:
        reason = f"no answer within {PROBE_SECONDS:g} seconds"
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
