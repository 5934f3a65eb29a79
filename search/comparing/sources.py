"""Find the sweeps of a comparison, in the storage folder or in MLflow stores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.formatting import mask_secrets
from search.comparing.comparison import Source
from search.core.record import SweepRecord
from search.storage.folder import open_folder
from search.storage.names import check_name
from training.errors import UserError


def read_sources(names: Sequence[str], storage: Path, uris: Sequence[str], experiment: str) -> list[Source]:
    """Read the sweeps from the storage folder; with stores, each from every store that has it.

    Raises:
        UserError: a sweep is not there, or fewer than two were found.
    """
    if uris:
        found = [source for name in names for source in _read_from_stores(check_name(name), uris, experiment)]
    else:
        records = [SweepRecord.open(open_folder(storage, name)) for name in names]
        found = [Source(record, str(record.folder.path)) for record in records]
    if len(found) < 2:
        raise UserError(f"{names[0]}: a comparison needs two sweeps. Name another one, or another --tracking-uri.")
    return found


def _read_from_stores(name: str, uris: Sequence[str], experiment: str) -> list[Source]:
    from search.tracking.remote import fetch_record, list_sweeps

    has_it = [uri for uri in uris if name in {sweep.name for sweep in list_sweeps(uri, experiment)}]
    # If no store has the sweep, reading it from the first one gives the error with the names that it has.
    return [
        Source(fetch_record(uri, experiment, name), mask_secrets(uri), uri, experiment) for uri in has_it or uris[:1]
    ]
