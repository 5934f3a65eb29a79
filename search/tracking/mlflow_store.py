"""Open an MLflow store before any trial starts; a server that does not answer is reported within seconds."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from analysis.reading.run_store import RunStore
from analysis.reading.store import SQLITE, ServerAway, import_client, open_client, refuse_deleted, sqlite_file

OUTAGES = (
    "INTERNAL_ERROR",
    "TEMPORARILY_UNAVAILABLE",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
)


def open_store(uri: str, experiment: str) -> RunStore:
    """Open the store at an address, and its experiment. Both are created if they are missing.

    Raises:
        ServerAway: the server does not answer.
    """
    folder = None
    if file := sqlite_file(uri):
        # Artifacts are stored beside the database, whatever the working folder is. A server chooses its own place.
        folder = (file.absolute().parent / "mlruns" / re.sub(r"[^\w.-]", "_", experiment)).as_uri()
        if not file.exists():
            import_client()
            _make_database(file)
    client = open_client(uri)
    existing = client.get_experiment_by_name(experiment)
    if existing is None:
        return RunStore(client, uri, [client.create_experiment(experiment, folder)])
    refuse_deleted(existing.lifecycle_stage, experiment)
    return RunStore(client, uri, [existing.experiment_id])


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
