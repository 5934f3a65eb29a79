"""Reach an MLflow store within seconds: what does not answer, or is none, is reported before mlflow is imported."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.formatting import mask_secrets
from training.errors import UserError
from training.process.optional import require_driver

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Connection

SERVERS = ("http://", "https://")
SQLITE = "sqlite:///"
CONNECT_SECONDS = 5  # the drivers themselves wait for minutes
TIMEOUTS = {"postgresql": "connect_timeout", "mysql": "connect_timeout", "mssql": "timeout"}  # of each driver
# Our own thread retries, after it has checked whether the lost request arrived. MLflow's retries could create a run
# twice.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


class ServerAway(UserError):
    """The store's server does not answer now, but may answer later."""


def open_client(uri: str) -> MlflowClient:
    """Return MLflow's client of a store that answers; for SQLite nothing is checked.

    Raises:
        ServerAway: the server does not answer.
    """
    if uri.startswith(SERVERS):
        probe_server(uri)
    elif uri.partition(":")[0] not in ("sqlite", "databricks"):
        with connect(uri):  # MLflow itself would try for minutes
            pass
    import_client()
    from mlflow import MlflowClient

    with mlflow_errors(uri):
        return MlflowClient(uri)


@contextmanager
def connect(uri: str) -> Iterator[Connection]:
    """Connect to a database.

    Raises:
        ServerAway: Its server does not answer.
    """
    shown, file = mask_secrets(uri), sqlite_file(uri)
    if file is not None and not file.exists():
        raise UserError(f"MLflow store {shown}: no such database. Run this where the sweep was started, or name it.")
    require_driver(f"MLflow store {shown}", uri)
    import sqlalchemy

    timeout = TIMEOUTS.get(uri.partition(":")[0].partition("+")[0])
    try:
        engine = sqlalchemy.create_engine(uri, connect_args={timeout: CONNECT_SECONDS} if timeout else {})
    except (sqlalchemy.exc.ArgumentError, ModuleNotFoundError) as error:
        raise UserError(f"MLflow store {shown}: not a database ({_reason(error)}).") from None
    try:
        with engine.connect() as connection:
            yield connection
    except sqlalchemy.exc.DBAPIError as error:
        if timeout and isinstance(error, sqlalchemy.exc.OperationalError):
            raise ServerAway(
                f"MLflow store {shown}: the database does not answer ({_reason(error.orig)}). Start it, or name another; "
                "sqlite:///mlflow.db needs no server."
            ) from None
        raise UserError(f"MLflow store {shown}: no MLflow store ({_reason(error.orig)}).") from None
    finally:
        engine.dispose()


def check_database(uri: str) -> None:
    """Refuse a database of something else, in which MLflow's client would create its tables."""
    with connect(uri) as connection:
        import sqlalchemy

        if not sqlalchemy.inspect(connection).has_table("experiments"):
            raise UserError(f"MLflow store {mask_secrets(uri)}: no MLflow store (it has no table of experiments).")


def import_client() -> None:
    """Import MLflow's client with our settings; this takes seconds."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import_module("mlflow")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints the errors that it also raises


def refuse_deleted(stage: str, experiment: str) -> None:
    """Refuse an experiment that is in MLflow's trash."""
    if stage != "active":
        raise UserError(f"--experiment {experiment}: it was deleted in MLflow. Restore it there or name another.")


def make_absolute(uri: str) -> str:
    """Make the path of an SQLite file absolute, so that it does not depend on the working folder."""
    file = sqlite_file(uri)
    return f"{SQLITE}{os.path.abspath(file)}{''.join(uri.partition('?')[1:])}" if file else uri


def sqlite_file(uri: str) -> Path | None:
    """Return the path of an address's SQLite file; None for any other address."""
    path = uri.removeprefix(SQLITE).partition("?")[0]
    return Path(path) if uri.startswith(SQLITE) and path else None


def probe_server(uri: str) -> None:
    """Check a server before mlflow is imported, since that takes seconds and its client gives up after minutes.

    Raises:
        ServerAway: it does not answer.
    """
    import requests

    try:
        status = requests.get(f"{uri.rstrip('/')}/health", timeout=CONNECT_SECONDS).status_code
    except requests.exceptions.SSLError:
        return  # a server answers; MLflow has its own settings for certificates
    except requests.exceptions.Timeout:
        reason = f"no answer within {CONNECT_SECONDS} seconds"
    except requests.exceptions.RequestException as error:
        text = str(error)
        reason = "connection refused" if "refused" in text else "unknown host" if "resolve" in text else _reason(error)
    else:
        if status < 500:
            return
        reason = f"HTTP status {status}"
    raise ServerAway(
        f"MLflow store {mask_secrets(uri)}: the MLflow server does not answer ({reason}). "
        "Start it, or name another; sqlite:///mlflow.db needs no server."
    )


@contextmanager
def mlflow_errors(uri: str) -> Iterator[None]:
    """Raise errors of MLflow's own as a `UserError`."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError  # from a database that lacks what MLflow looks for

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        if "out-of-date database schema" in str(error):
            raise UserError(
                f"MLflow store {mask_secrets(uri)}: the database is of another version of MLflow. Copy it, then run: "
                f"mlflow db upgrade {mask_secrets(uri)}"
            ) from None
        raise UserError(f"MLflow store {mask_secrets(uri)}: MLflow reports an error ({_reason(error)}).") from None


@contextmanager
def artifact_errors(uri: str, artifact: str) -> Iterator[None]:
    """Raise errors about an artifact as a `UserError`."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - each kind of store has its own
        raise UserError(
            f"MLflow store {mask_secrets(uri)}: the artifact {artifact} of the sweep's run cannot be read "
            f"({_reason(error)}). Restore it, or run this with the storage folder of the sweep."
        ) from None


def _reason(error: BaseException | None) -> str:
    return mask_secrets(str(error).strip().split("\n")[0])[:200]
