"""`sweep list` and `sweep show`: the sweeps of a folder, and the trials of one."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import search
from search.arguments import check_number
from search.cli.options import AsJson, Plugins, Storage, name_latest, options_of
from search.sweep_options import STORAGE, OpenOptions, complete_trial
from training.errors import UserError


def list_(storage: Storage = STORAGE, as_json: AsJson = False, plugins: Plugins = None) -> None:
    """List the sweeps in the storage folder."""
    from ledger.folder import list_folders
    from search.cli.json_output import to_json
    from search.display.tables.sweeps_table import describe_sweeps, sweeps_table
    from search.display.terminal import make_console

    folders = list_folders(storage.absolute())
    if not folders and storage != STORAGE and not storage.exists():  # the default one is made by the first sweep
        raise UserError(f"--storage={storage}: there is no such folder. Name the folder that holds the sweeps.")
    rows, problems = describe_sweeps(folders)
    if as_json:
        print(to_json(rows))
    elif rows or not problems:
        make_console().print(sweeps_table(rows))
    for problem in problems:
        make_console(sys.stderr if as_json else None).print(f"! {problem}", markup=False)


@options_of(OpenOptions, name=None)
def show(
    *,
    trial: Annotated[
        str | None,
        typer.Argument(help="The number of a trial, such as 0007, to show it in full.", autocompletion=complete_trial),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of trials to list.")] = 20,
    as_json: AsJson = False,
    **place: Any,
) -> None:
    """Show a sweep's leaderboard, and how certain the lead of its best trial is; or one trial in full.

    Without a name it is the latest sweep.
    """
    check_number("--limit", limit)
    from search.display.tables.leaderboard import describe_finding, leaderboard
    from search.display.terminal import make_console

    place["name"] = name_latest(place, make_console(sys.stderr if as_json else None))
    result = search.open(**place)
    if missing := result.record.without_plugins:
        make_console(sys.stderr).print(f"! {missing}", markup=False)
    if trial is not None:
        from search.display.one_trial import describe_trial

        if as_json:
            raise UserError("--json: it gives all trials. Leave the number of the trial out.")
        result.console.print(describe_trial(result.record, result.record.find_trial(trial), result.console.width))
        return
    if as_json:
        from search.cli.json_output import describe_sweep, to_json

        print(to_json(describe_sweep(result.record)))
        return
    result.console.print(leaderboard(result.record.trials, limit=limit))
    for sentence in describe_finding(result.record):
        result.console.print(sentence, markup=False)
