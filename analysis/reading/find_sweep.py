"""Find a sweep in an MLflow store before the heavy imports that reading it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from analysis.formatting import mask_secrets
from training.errors import UserError
from training.process.optional import require_driver

if TYPE_CHECKING:
    from sqlalchemy import Connection

SERVERS = ("http://", "https://")
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


@dataclass(frozen=True)
class SweepRun:
    """The MLflow run of a sweep; `artifact_uri` is empty if the store was read through a server."""

    run_id: str
    name: str
    state: str
    artifact_uri: str = ""


def check_sweep(uri: str, experiment: str, name: str) -> None:
    """Check that a database has a sweep; a server is not checked before the sweep is read from it.

    Raises:
        UserError: There is no such database or sweep.
    """
    if not uri.startswith(SERVERS):
        with connect(uri) as connection:
            find_sweep(connection, uri, experiment, name)


@contextmanager
def connect(uri: str) -> Iterator[Connection]:
    """Connect to MLflow's database.

    Raises:
        UserError: There is no such database, or it is not MLflow's.
    """
    shown, file = mask_secrets(uri), uri.removeprefix("sqlite:///").partition("?")[0]
    if uri.startswith("sqlite:") and not Path(file).exists():
        raise UserError(f"--tracking-uri {shown}: no such database. Run this where the sweep was started, or name it.")
    require_driver(f"--tracking-uri {shown}", uri)
    import sqlalchemy

    try:
        engine = sqlalchemy.create_engine(uri)
    except (sqlalchemy.exc.ArgumentError, ModuleNotFoundError) as error:
        raise UserError(
            f"--tracking-uri {shown}: not a database ({mask_secrets(str(error).splitlines()[0])})."
        ) from None
    try:
        with engine.connect() as connection:
            yield connection
    except sqlalchemy.exc.DBAPIError as error:
        raise UserError(
            f"--tracking-uri {shown}: no MLflow store ({mask_secrets(str(error.orig).splitlines()[0])})."
        ) from None
    finally:
        engine.dispose()


def find_sweep(connection: Connection, uri: str, experiment: str, name: str) -> SweepRun:
    """The run of the latest sweep with this name.

    Raises:
        UserError: There is none.
    """
    from sqlalchemy import text

    rows = connection.execute(text(SWEEPS), {"experiment": experiment}).mappings()
    runs = [SweepRun(row["run_id"], row["name"], row["state"], row["artifact_uri"]) for row in rows]
    return choose(runs, name, uri, experiment)


class Named(Protocol):
    """A sweep in a store."""

    @property
    def name(self) -> str: ...


AnySweep = TypeVar("AnySweep", bound=Named)


def choose(sweeps: Sequence[AnySweep], name: str, uri: str, experiment: str) -> AnySweep:
    """The first sweep with this name.

    Args:
        sweeps: The latest first.
        name: The name to find.
        uri: The store, for the error.
        experiment: The experiment, for the error.

    Raises:
        UserError: There is none.
    """
    for sweep in sweeps:
        if sweep.name == name:
            return sweep
    known = ", ".join(dict.fromkeys(sweep.name for sweep in sweeps[:10]))
    hint = f"There are: {known}." if known else f"There are none in the experiment {experiment}."
    raise UserError(f"{name}: no such sweep in {mask_secrets(uri)}. {hint}")
