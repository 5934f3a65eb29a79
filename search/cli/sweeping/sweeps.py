"""Commands that start, list and end sweeps."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import search
from analysis import EXPERIMENT, TRACKING_URI
from search.arguments import absolute_uri, check_number, parse_tags
from search.cli.options import (
    STORAGE,
    AsCsv,
    AsJson,
    Cpus,
    Dashboard,
    Experiment,
    FromStore,
    Gpus,
    Name,
    OtherAddress,
    OtherCpus,
    OtherGpus,
    OtherStore,
    Overrides,
    Preset,
    Storage,
    TimeBudget,
    TrackingUri,
    With,
    check_form,
    part_space,
)
from training.errors import UserError


def run(
    space: Annotated[
        str | None, typer.Argument(help="A bundled space (`quick`, `card`, `full`) or a YAML file; none with --preset.")
    ] = None,
    overrides: Overrides = None,
    preset: Preset = None,
    name: Annotated[str | None, typer.Option(help="Name of the sweep. Default: the space's name and a number.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials, including the baselines.")] = None,
    time_budget: TimeBudget = None,
    cpus_per_trial: Cpus = None,
    gpus_per_trial: Gpus = None,
    address: Annotated[str | None, typer.Option(help="Head node of a Ray cluster. Default: this machine.")] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(help="Trials at the same time; an autoscaler sees those that have no room yet.")
    ] = None,
    accelerator: Annotated[str | None, typer.Option(help="Type of GPU that trials need, such as `A100`.")] = None,
    storage: Storage = STORAGE,
    tracking_uri: TrackingUri = TRACKING_URI,
    experiment: Experiment = EXPERIMENT,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search; the recipe has its own seed.")] = 0,
    warm_start: Annotated[
        list[str] | None, typer.Option(help="Begin with the best recipes of this earlier sweep; may be repeated.")
    ] = None,
    keep_best: Annotated[int, typer.Option(min=1, help="Number of completed trials that keep their weights.")] = 5,
    owner: Annotated[str | None, typer.Option(help="Who runs the sweep. Default: the user of this process.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Tag of the sweep in MLflow, such as `team=vision`; may be repeated.")
    ] = None,
    or_resume: Annotated[
        bool, typer.Option("--or-resume", help="Continue the sweep `--name` if it exists, as after a restarted job.")
    ] = False,
    copy_to: Annotated[
        str | None, typer.Option(help="Keep a copy of ledger and checkpoints there, such as s3://bucket/sweeps.")
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Attach the best trial's export to the sweep's run in MLflow.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only check data, weights, MLflow, storage and machines; train nothing.")
    ] = False,
    dashboard: Dashboard = False,
    with_: With = None,
) -> None:
    """Search a space: first the baseline, then recipes that the sampler proposes; ASHA stops the worst early.

    Ctrl-C ends the sweep cleanly; `sweep resume` continues it.
    """
    space, values = part_space(space, overrides, preset)
    arguments: dict[str, Any] = {
        "preset": preset,
        "name": name,
        "trials": trials,
        "time_budget": time_budget,
        "cpus_per_trial": cpus_per_trial,
        "gpus_per_trial": gpus_per_trial,
        "address": address,
        "max_concurrent": max_concurrent,
        "accelerator": accelerator,
        "storage": storage,
        "tracking_uri": tracking_uri,
        "experiment": experiment,
        "seed": seed,
        "warm_start": warm_start or [],
        "keep_best": keep_best,
        "owner": owner,
        "tags": tag or [],
        "or_resume": or_resume,
        "copy_to": copy_to,
    }
    if check:
        from search.checking.print_checks import print_checks

        print_checks(search.check(space, values, **arguments))
        return
    from search.cli.sweeping.conclusion import conclude

    conclude(search.run(space, values, **arguments, dashboard=dashboard), publish, dashboard)


def resume(
    name: Name,
    storage: Storage = STORAGE,
    time_budget: TimeBudget = None,
    cpus_per_trial: OtherCpus = None,
    gpus_per_trial: OtherGpus = None,
    address: OtherAddress = None,
    tracking_uri: OtherStore = None,
    copy: Annotated[
        str | None, typer.Option("--from", help="Fetch the sweep from the URI that `--copy-to` named.", metavar="URI")
    ] = None,
    dashboard: Dashboard = False,
    with_: With = None,
) -> None:
    """Continue an interrupted sweep from its ledger, also on other machines or with another MLflow store."""
    result = search.resume(
        name,
        storage=storage,
        time_budget=time_budget,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
        tracking_uri=tracking_uri,
        copy=copy,
        dashboard=dashboard,
    )
    from search.cli.sweeping.conclusion import conclude

    conclude(result, dashboard=dashboard)


def extend(
    name: Name,
    trials: Annotated[int, typer.Option(help="Number of additional trials.")],
    storage: Storage = STORAGE,
    time_budget: TimeBudget = None,
    cpus_per_trial: OtherCpus = None,
    gpus_per_trial: OtherGpus = None,
    address: OtherAddress = None,
    tracking_uri: OtherStore = None,
    dashboard: Dashboard = False,
    with_: With = None,
) -> None:
    """Add trials to a sweep; the sampler uses the results of all earlier trials."""
    result = search.extend(
        name,
        trials,
        storage=storage,
        time_budget=time_budget,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
        tracking_uri=tracking_uri,
        dashboard=dashboard,
    )
    from search.cli.sweeping.conclusion import conclude

    conclude(result, dashboard=dashboard)


def list_(
    storage: Storage = STORAGE,
    tracking_uri: Annotated[
        str | None, typer.Option(help="List the sweeps in this MLflow store, not those in the storage folder.")
    ] = None,
    experiment: Experiment = EXPERIMENT,
    owner: Annotated[str | None, typer.Option(help="Only the sweeps of this user; needs --tracking-uri.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only sweeps with this tag, such as `team=vision`; needs --tracking-uri.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    with_: With = None,
) -> None:
    """List the sweeps in the storage folder, or in an MLflow store."""
    check_form(as_json, as_csv)
    if tracking_uri is not None:
        from search.cli.looking.remote_list import print_remote

        print_remote(absolute_uri(tracking_uri), experiment, owner, parse_tags(tag or []), as_json, as_csv)
        return
    if owner is not None or tag:
        raise UserError("--owner and --tag: these are in the MLflow store. Name it with --tracking-uri.")
    from search.display.records import describe_rows
    from search.display.tables.columns import make_console
    from search.display.tables.sweep_list import describe_sweeps
    from search.display.tables.sweeps_table import SweepRow, sweeps_table
    from search.storage.folder import list_folders

    console = make_console()
    rows, problems = describe_sweeps(list_folders(storage.absolute()))
    if as_json or as_csv:
        print(describe_rows(rows, SweepRow, as_json))
    elif rows or not problems:
        console.print(sweeps_table(rows))
    for problem in problems:
        if as_json or as_csv:
            print(f"! {problem}", file=sys.stderr)
        else:
            console.print(f"! {problem}", markup=False)


def show(
    name: Name,
    trial: Annotated[str | None, typer.Argument(help="The number of a trial, such as 0007, to see all of it.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of trials to list.")] = 20,
    sort: Annotated[
        str | None,
        typer.Option(help="Order the trials by this column, such as `optimizer.lr`; with `-` before it, downwards."),
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Only trials such as `optimizer.lr>0.01` or `state=failed`; may be repeated."),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Show these columns, such as `trial,score,optimizer.lr`.")] = None,
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    experiment: Experiment = EXPERIMENT,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    with_: With = None,
) -> None:
    """Show a sweep's leaderboard with standard errors, and how many trials may be the best; or one trial in full."""
    check_number("--limit", limit)
    check_form(as_json, as_csv)
    if as_json and columns is not None:
        raise UserError("--columns and --json: JSON always has all fields. Leave one of the options out.")
    from search.display.tables.leaderboard import leaderboard

    result = search.open(name, storage=storage, tracking_uri=tracking_uri, experiment=experiment)
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
        from search.display.records import describe_sweep
        from search.display.tables.trial_table import TrialTable

        chosen = TrialTable(describe_sweep(result.record), sort, filter_ or [], columns)
        if as_json or as_csv:
            print(chosen.to_json() if as_json else chosen.to_csv())
        else:
            result.console.print(chosen.render(limit))
        return
    result.console.print(leaderboard(result.record.trials, limit=limit))
    for note in result.record.notes:
        result.console.print(f"Note: {note.text}", markup=False)


def rm(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage: Storage = STORAGE,
) -> None:
    """Remove a sweep's folder: ledger, recipes and weights. Its runs in MLflow stay."""
    from search.storage.folder import find_folder

    folder = find_folder(storage.absolute(), name)
    if folder.is_running():
        raise UserError(f"{name} is running. Stop it first: sweep stop {name}.")
    if yes or typer.confirm(f"Remove {folder.path} and all weights in it?"):
        folder.remove()
        print(f"Removed {folder.path}; its runs in MLflow are still there.")


def repair(name: Name, storage: Storage = STORAGE, with_: With = None) -> None:
    """Repair a damaged sweep: keep every complete line of its ledger, and the damaged file under another name."""
    from search.core.repair import repair_sweep
    from search.storage.folder import find_folder

    print(repair_sweep(find_folder(storage.absolute(), name)))
