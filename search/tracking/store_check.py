"""Check an MLflow store without writing to it."""

from __future__ import annotations

import os

from analysis.formatting import mask_secrets
from analysis.reading.find_sweep import SERVERS, connect
from search.arguments import check_store
from search.tracking.mlflow_store import SETTINGS, probe_server, refuse_deleted, sqlite_file
from training.errors import UserError

STAGE = "SELECT lifecycle_stage FROM experiments WHERE name = :experiment"


def describe_store(uri: str, experiment: str) -> str:
    """Return a sentence about a store that can be used; nothing is created there.

    Raises:
        UserError: the store does not answer or cannot be written, or its experiment was deleted.
    """
    check_store(uri, experiment)
    shown, file = mask_secrets(uri), sqlite_file(uri)
    if file is not None and not file.exists():
        return f"{shown} will be created"
    is_server = uri.startswith(SERVERS)
    stage = _ask_server(uri, experiment) if is_server else _ask_database(uri, experiment)
    if stage is not None:
        refuse_deleted(stage, experiment)
    state = "exists" if stage else "will be created"
    return f"{shown} {'answers' if is_server else 'can be read'}; the experiment {experiment} {state}"


def _ask_server(uri: str, experiment: str) -> str | None:
    probe_server(uri)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        found = MlflowClient(uri).get_experiment_by_name(experiment)
    except MlflowException as error:
        reason = mask_secrets(str(error).strip().split("\n")[0])[:200]
        raise UserError(f"--tracking-uri={mask_secrets(uri)}: MLflow reports an error ({reason}).") from None
    return found.lifecycle_stage if found else None


def _ask_database(uri: str, experiment: str) -> str | None:
    from sqlalchemy import text

    with connect(uri) as connection:
        stage: str | None = connection.execute(text(STAGE), {"experiment": experiment}).scalar()
    return stage
