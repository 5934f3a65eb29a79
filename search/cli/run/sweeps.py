"""Commands that plan, start, list and repair sweeps."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

import search
from ledger import TRACKING_URI
from ledger.formatting import remove_controls
from search.arguments import VERBOSE, check_number, parse_tags
from search.cli.options import (
    STORAGE,
    AsCsv,
    AsJson,
    FromStore,
    Name,
    Plugins,
    Storage,
    check_form,
    list_options,
    name_latest,
    options_of,
)
from search.sweep_options import OpenOptions, PlanOptions, ResumeOptions, SweepOptions, complete_trial
from training.errors import UserError

# The options of a sweep that its plan depends on.
PLANNED = (
    *("space", "overrides", "preset", "trials", "time_budget", "cpus_per_trial", "gpus_per_trial", "address"),
    *("max_concurrent", "accelerator", "storage", "plugins", "price_per_gpu_hour"),
)
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the results only, no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Also print the logs of the trials and of Ray, for the search for a fault.")
]
NOT_RUN = ("space", "overrides", "price_per_gpu_hour", "as_json")  # of a plan, but no options of its sweep


@options_of(SweepOptions, tracking_uri=TRACKING_URI)
def run(
    *,
    publish: Annotated[
        bool, typer.Option("--publish", help="Attach the best trial's export to the sweep's run in MLflow.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only check data, weights, MLflow, storage and machines; train nothing.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    **given: Any,
) -> None:
    """Search a space: first the baseline, then recipes that the sampler proposes; ASHA stops the worst early.

    Ctrl-C ends the sweep cleanly; `sweep resume` continues it.
    """
    if check:
        from search.checking.checks import print_checks

        print_checks(search.check(**given))
        return
    _search(search.run, given, quiet, verbose, publish)


@options_of(PlanOptions, only=PLANNED)
def plan(*, context: typer.Context, as_json: AsJson = False, **given: Any) -> None:
    """Forecast what a sweep will need: time, memory, concurrent trials and cost; some recipes are trained briefly.

    It trains a few batches of the baseline, of one recipe for each other choice that changes the cost, and of some random
    recipes, which show the error of the plan. `sweep run` with the same space and data, and its report, use the plan.
    """
    from search.planning.view import describe_plan
    from search.records.rows import apart, to_json

    with apart(as_json) as console:
        forecast = search.plan(**given, console=console)
    if as_json:
        print(to_json(forecast))
    else:
        console.print(describe_plan(forecast))
        words = [*filter(None, (given["space"], *(given["overrides"] or ()))), *list_options(context, NOT_RUN)]
        console.print(f"Next: {shlex.join(['sweep', 'run', *map(str, words)])}", markup=False)


@options_of(ResumeOptions)
def resume(*, quiet: Quiet = False, verbose: Verbose = False, **given: Any) -> None:
    """Continue an interrupted sweep from its ledger, also on other machines or with another MLflow store."""
    _search(search.resume, given, quiet, verbose)


@options_of(ResumeOptions, trials=...)
def extend(*, quiet: Quiet = False, verbose: Verbose = False, **given: Any) -> None:
    """Add trials to a sweep, as `sweep resume --trials` does; the sampler uses the results of all earlier trials."""
    _search(search.extend, given, quiet, verbose)


def _search(
    function: Callable[..., search.Result], given: dict[str, Any], quiet: bool, verbose: bool, publish: bool = False
) -> None:
    """Run a sweep, with its progress unless the user wants quiet, and print its results."""
    if quiet and verbose:
        raise UserError("--quiet and --verbose: choose one of them.")
    from search.display.tables.columns import make_console

    console = make_console()
    console.quiet = quiet
    if verbose:
        os.environ[VERBOSE] = "1"
    result = function(**given, console=console)
    from search.cli.run.conclusion import conclude  # imports libraries that take seconds

    console.quiet = False
    conclude(result, publish, given["dashboard"])


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

    console = make_console()
    rows, problems = describe_sweeps(list_folders(storage.absolute()))
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


def rm(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage: Storage = STORAGE,
) -> None:
    """Remove a sweep's folder: ledger, recipes and weights. Its runs in MLflow stay."""
    from ledger.folder import find_folder

    folder = find_folder(storage.absolute(), name)
    if folder.is_running():
        raise UserError(f"{name} is running. Stop it first: sweep stop {name}.")
    if yes or typer.confirm(f"Remove {folder.path} and all weights in it?"):
        folder.remove()
        print(f"Removed {folder.path}; its runs in MLflow are still there.")


def repair(name: Name, storage: Storage = STORAGE, plugins: Plugins = None) -> None:
    """Repair a damaged sweep: keep every complete line of its ledger, and the damaged file under another name."""
    from ledger.folder import find_folder
    from ledger.repair import repair_sweep

    print(repair_sweep(find_folder(storage.absolute(), name)))
