"""The table of the sweeps in an MLflow store."""

from __future__ import annotations

from collections.abc import Mapping

from search.core.trials import UNFINISHED
from search.display.records import describe_rows
from search.display.tables.columns import make_console
from search.display.tables.sweeps_table import RemoteRow, remote_table
from search.tracking.entries import ENDED
from search.tracking.remote import RemoteSweep, list_sweeps

BEST = "best_val_"  # begins the name of the metric with the best score


def print_remote(
    uri: str, experiment: str, owner: str | None, tags: Mapping[str, str], as_json: bool = False, as_csv: bool = False
) -> None:
    """Print the sweeps of an experiment with this owner and these tags.

    Raises:
        UserError: the store cannot be read.
    """
    rows = [_describe(sweep) for sweep in list_sweeps(uri, experiment, owner, tags)]
    if as_json or as_csv:
        print(describe_rows(rows, RemoteRow, as_json))
    else:
        make_console().print(remote_table(rows))


def _describe(sweep: RemoteSweep) -> RemoteRow:
    metrics = sweep.run.data.metrics
    best = next((name for name in metrics if name.startswith(BEST)), "")
    done = sum(int(metrics.get(f"trials_{state}", 0)) for state in ENDED if state not in UNFINISHED)
    tags = " ".join(f"{name}={value}" for name, value in sorted(sweep.tags.items()))
    started = sweep.run.info.start_time / 1000
    return RemoteRow(
        sweep.name, sweep.state, done, best.removeprefix("best_"), metrics.get(best), started, sweep.owner, tags
    )
