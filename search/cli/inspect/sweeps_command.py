"""`sweep list` and `sweep show`: the sweeps of a folder or a store, and the trials of one."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import search
from ledger.formatting import remove_controls
from search.arguments import check_number, parse_tags
from search.cli.options import AsCsv, AsJson, FromStore, Plugins, Storage, check_form, name_latest, options_of
from search.sweep_options import STORAGE, OpenOptions, complete_trial
from training.errors import UserError


def list_(
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="With --from: only sweeps with this tag, such as `team=vision` or `owner=ada`."),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    plugins: Plugins = None,
) -> None:
    """List the sweeps in the storage folder, or in an MLflow store."""
    check_form(as_json, as_csv)
    from search.display.tables.columns import make_console
    from search.display.tables.sweeps_table import (
        RemoteRow,
        SweepRow,
        describe_remote,
        describe_sweeps,
        remote_table,
        sweeps_table,
    )
    from search.records.rows import print_result

    is_plain = as_json or as_csv
    if tracking_uri is not None:
        from analysis.reading.remote import list_sweeps

        stored = list_sweeps(tracking_uri, parse_tags(tag or []))
        remote = [describe_remote(sweep) for sweep in stored]
        if is_plain:
            print_result(remote, remote, RemoteRow, as_json)
        else:
            make_console().print(remote_table(remote))
        return
    if tag:
        raise UserError("--tag: tags are in the MLflow store. Name it with --from.")
    from ledger.folder import list_folders

    console, folders = make_console(), list_folders(storage.absolute())
    if not folders and storage != STORAGE and not storage.exists():  # the default one is made by the first sweep
        raise UserError(f"--storage={storage}: there is no such folder. Name the folder that holds the sweeps.")
    rows, problems = describe_sweeps(folders)
    if is_plain:
        print_result(rows, rows, SweepRow, as_json)
    elif rows or not problems:
        console.print(sweeps_table(rows))
    for problem in problems:
        if is_plain:
            print(remove_controls(f"! {problem}"), file=sys.stderr)
        else:
            console.print(f"! {problem}", markup=False)


@options_of(OpenOptions, name=None)
def show(
    *,
    trial: Annotated[
        str | None,
        typer.Argument(help="The number of a trial, such as 0007, to show it in full.", autocompletion=complete_trial),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of trials to list.")] = 20,
    sort: Annotated[
        str | None,
        typer.Option(
            help="Sort the trials by this column, such as `optimizer.lr`; `-optimizer.lr` sorts in descending order."
        ),
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help="Show only matching trials, such as `optimizer.lr>0.01` or `state=failed`; may be repeated.",
        ),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Show these columns, such as `trial,score,optimizer.lr`.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    **place: Any,
) -> None:
    """Show a sweep's leaderboard, and how certain the lead of its best trial is; or one trial in full.

    Without a name it is the latest sweep.
    """
    check_number("--limit", limit)
    check_form(as_json, as_csv)
    if as_json and columns is not None:
        raise UserError("--columns and --json: JSON always has all fields. Leave one of the options out.")
    from search.display.tables.columns import make_console
    from search.display.tables.leaderboard import describe_finding, leaderboard

    place["name"] = name_latest(place, make_console(sys.stderr if as_json or as_csv else None))
    result = search.open(**place)
    if missing := result.record.without_plugins:
        make_console(sys.stderr).print(f"! {missing}", markup=False)
    if trial is not None:
        from search.display.one_trial import describe_trial, find_trial

        if as_json or as_csv:
            raise UserError("--json and --csv: they give all trials. Leave the number of the trial out.")
        if sort is not None or filter_ or columns is not None:
            raise UserError(
                "--sort, --filter and --columns: they choose among trials. Leave the number of the trial out."
            )
        result.console.print(describe_trial(result.record, find_trial(result.record, trial), result.console.width))
        return
    if sort is not None or filter_ or columns is not None or as_json or as_csv:
        from search.records.rows import describe_sweep
        from search.records.trial_table import TrialTable

        chosen = TrialTable(describe_sweep(result.record), sort, filter_ or [], columns)
        if as_json or as_csv:
            print(chosen.to_json() if as_json else chosen.to_csv())
        else:
            result.console.print(chosen.render(limit))
        return
    result.console.print(leaderboard(result.record.trials, limit=limit))
    for sentence in describe_finding(result.record):
        result.console.print(sentence, markup=False)
    for note in result.record.notes:
        result.console.print(f"Note: {note.text}", markup=False)
