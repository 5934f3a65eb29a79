"""The last lines of a sweep's command, and its exit code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from analysis import TRACKING_URI
from analysis.formatting import MASK, plural
from search.arguments import absolute_uri
from search.core.record import SweepRecord
from search.display.finding import describe_finding
from search.display.tables.leaderboard import leaderboard
from search.followup.trial_export import export_trial
from search.storage.secrets import URI
from search.tracking.remote import publish_export

if TYPE_CHECKING:
    from rich.console import Console

    from search.result import Result


def conclude(result: Result, publish: bool = False, dashboard: bool = False) -> None:
    """Print a search's leaderboard, export its best trial, and print how to continue.

    With `publish` the export is attached to the sweep's run in MLflow. With `dashboard` the sweep had one, which has ended.

    Raises:
        typer.Exit: the sweep was interrupted, or no trial completed.
        UserError: the export cannot be attached.
    """
    record, trials, console = result.record, result.record.trials, result.console
    if record.replication is not None:
        conclude_replication(record, result.state, console)
        return
    console.print(leaderboard(trials, lead=False))
    if best := trials.best():
        exported = export_trial(record, None, None)
        console.print(exported.sentence)
        if publish:
            publish_export(record, exported.folder)
    if result.undelivered:
        missing = plural(result.undelivered, "event")
        console.print(f"{missing} did not reach MLflow; what is missing is sent again with sweep resume {record.name}.")
    console.print(f"MLflow UI: {_describe_ui(record.recorded_settings.tracking_uri)}")
    if best:
        for sentence in describe_finding(record, best):
            console.print(sentence, markup=False)
    if result.state != "interrupted" and not best:
        console.print("No trial completed. The reasons are in `sweep show` and in the trials' log.txt.")
    if result.state != "completed":
        console.print(f"Continue with: sweep resume {record.name}", markup=False)
    if dashboard:
        console.print(f"The dashboard has ended. Open it again: sweep dashboard {record.name}", markup=False)
    if result.state == "interrupted":
        raise typer.Exit(130)
    if not best:
        raise typer.Exit(1)


def _describe_ui(tracking_uri: str) -> str:
    """Name the command that shows a store. An address with a masked password must come from the environment."""
    if MASK in tracking_uri:
        return f"sweep ui, with {URI} set to {tracking_uri}"
    default = tracking_uri == absolute_uri(os.environ.get(URI) or TRACKING_URI)
    return "sweep ui" if default else f"sweep ui --tracking-uri {tracking_uri}"


def conclude_replication(record: SweepRecord, state: str, console: Console) -> None:
    """Print the results of a confirmation or an ablation that ran to its end.

    Raises:
        typer.Exit: it was interrupted.
    """
    from search.followup.replications.ablation import conclude_ablation
    from search.followup.replications.confirmation import conclude_confirmation
    from search.followup.replications.replication import read_replication

    if state != "completed":
        console.print(f"Continue with: sweep resume {record.name}")
        raise typer.Exit(130)
    replicated = read_replication(record)
    conclude = conclude_confirmation if replicated.event.kind == "confirm" else conclude_ablation
    conclude(replicated, console)
