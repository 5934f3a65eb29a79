"""The last lines of a sweep's command, and its exit code."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import typer

from ledger import TRACKING_URI
from ledger.formatting import MASK, plural
from ledger.secrets import URI
from ledger.trials import UNFINISHED
from search.arguments import make_absolute
from search.display.tables.leaderboard import describe_finding, leaderboard
from search.runner.interrupt import hint_resume
from search.tracking.own_run import publish_export
from training.plugins import list_sources

if TYPE_CHECKING:
    from search.result import Result


def conclude(result: Result, publish: bool = False) -> None:
    """Print a search's leaderboard, export its best trial, and print how to continue.

    With `publish` the export is attached to the sweep's run in MLflow.

    Raises:
        typer.Exit: the sweep was interrupted, or no trial completed.
    """
    record, trials, console = result.record, result.record.trials, result.console
    if record.replication is not None:
        from search.display.results import conclude_replication
        from search.evaluation.replications.replication import read_replication

        if result.state != "completed":
            console.print(f"Continue with: sweep resume {record.called}")
            raise typer.Exit(130)
        conclude_replication(read_replication(record), console)
        return
    console.print(leaderboard(trials))
    if best := trials.best():
        finding = describe_finding(record)
        for sentence in finding:
            console.print(sentence)
        folder = result.hand_back(finding[0])
        if publish:
            publish_export(record, folder)
    if result.undelivered:
        missing = plural(result.undelivered, "event")
        console.print(f"{missing} did not reach MLflow. Send what is missing with: sweep resume {record.called}")
    called, store = record.called, _describe_ui(record.recorded_settings.tracking_uri)
    plugins = "".join(f" --plugin {shlex.quote(source['file'])}" for source in list_sources())
    tested = ", then the test split" if (record.header.dataset or {}).get("test_images") else ""
    follow = f"sweep report {called}{plugins}, sweep confirm {called}{plugins} (fresh seeds{tested}), " if best else ""
    console.print(f"Next: {follow}sweep show {called}{plugins}, {store}", markup=False)
    is_short = result.state == "time_budget" and not best
    have_ended = any(trial.state not in UNFINISHED for trial in trials)
    if result.state != "interrupted" and not best and (have_ended or not is_short):
        console.print("No trial completed. The reasons are in `sweep show` and in the trials' log.txt.")
    if is_short:
        more = f"sweep resume {called}{plugins} --time-budget 1h"
        console.print(f"The time budget was spent before a trial completed. Give more time: {more}", markup=False)
    elif result.state != "completed":
        console.print(hint_resume(f"{called}{plugins}", record.recorded_settings.time_budget_seconds), markup=False)
    elif len(trials) < record.budget:
        console.print(
            f"All {plural(len(trials), 'recipe')} of this space have been trained, so the sweep ended before its "
            f"{record.budget} trials."
        )
    if result.state == "interrupted":
        raise typer.Exit(130)
    if not best:
        raise typer.Exit(1)


def _describe_ui(tracking_uri: str) -> str:
    """Name the command that shows a store. An address with a masked password must come from the environment."""
    if MASK in tracking_uri:
        return f"sweep ui, with {URI} set to {tracking_uri}"
    default = tracking_uri == make_absolute(os.environ.get(URI) or TRACKING_URI)
    return "sweep ui" if default else f"sweep ui --tracking-uri {shlex.quote(tracking_uri)}"
