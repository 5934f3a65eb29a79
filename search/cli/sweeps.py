"""Commands that start, list and end sweeps."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import search
from analysis import EXPERIMENT, TRACKING_URI
from search.arguments import absolute_uri, check_number, parse_tags
from search.cli.options import (
    STORAGE,
    AsCsv,
    AsJson,
    Experiment,
    FromStore,
    Name,
    OtherAddress,
    OtherCpus,
    OtherGpus,
    OtherStore,
    Overrides,
    Storage,
    TimeBudget,
    TrackingUri,
    With,
    check_form,
)
from search.storage.names import check_name
from training.errors import UserError


def run(
    space: Annotated[str, typer.Argument(help="A bundled space (`quick`, `card`, `full`) or a YAML file.")],
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option(help="Name of the sweep. Default: the space's name and a number.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials, including the baselines.")] = None,
    time_budget: TimeBudget = None,
    cpus_per_trial: Annotated[float | None, typer.Option(help="CPUs of each trial.")] = None,
    gpus_per_trial: Annotated[float | None, typer.Option(help="GPUs of each trial; may be a fraction.")] = None,
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
    publish: Annotated[
        bool, typer.Option("--publish", help="Attach the best trial's export to the sweep's run in MLflow.")
    ] = False,
    with_: With = None,
) -> None:
    """Search a space: first the baseline, then recipes that the sampler proposes; ASHA stops the worst early.

    Ctrl-C ends the sweep cleanly; `sweep resume` continues it.
    """
    result = search.run(
        space,
        overrides or [],
        name=name,
        trials=trials,
        time_budget=time_budget,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
        max_concurrent=max_concurrent,
        accelerator=accelerator,
        storage=storage,
        tracking_uri=tracking_uri,
        experiment=experiment,
        seed=seed,
        warm_start=warm_start or [],
        keep_best=keep_best,
        owner=owner,
        tags=tag or [],
        or_resume=or_resume,
    )
    from search.cli.conclusion import conclude

    conclude(result, publish)


def resume(
    name: Name,
    storage: Storage = STORAGE,
    time_budget: TimeBudget = None,
    cpus_per_trial: OtherCpus = None,
    gpus_per_trial: OtherGpus = None,
    address: OtherAddress = None,
    tracking_uri: OtherStore = None,
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
    )
    from search.cli.conclusion import conclude

    conclude(result)


def extend(
    name: Name,
    trials: Annotated[int, typer.Option(help="Number of additional trials.")],
    storage: Storage = STORAGE,
    time_budget: TimeBudget = None,
    cpus_per_trial: OtherCpus = None,
    gpus_per_trial: OtherGpus = None,
    address: OtherAddress = None,
    tracking_uri: OtherStore = None,
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
    )
    from search.cli.conclusion import conclude

    conclude(result)


def stop(
    name: Name, storage: Storage = STORAGE, tracking_uri: FromStore = None, experiment: Experiment = EXPERIMENT
) -> None:
    """End a running sweep as Ctrl-C would; it can be resumed. With --tracking-uri also from another machine."""
    if tracking_uri is not None:
        from search.tracking.remote import request_stop

        request_stop(absolute_uri(tracking_uri), experiment, check_name(name))
        print(f"{name} will end when its driver has read the request, within about 10 seconds.")
        return
    from search.storage.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    if not folder.is_running():
        raise UserError(f"{name} is not running.")
    folder.stop_request.touch()
    print(f"{name} will end when its driver has read the request. Continue with: sweep resume {name}")


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
        from search.cli.remote_list import print_remote

        print_remote(absolute_uri(tracking_uri), experiment, owner, parse_tags(tag or []), as_json, as_csv)
        return
    if owner is not None or tag:
        raise UserError("--owner and --tag: these are in the MLflow store. Name it with --tracking-uri.")
    from search.display.records import describe_rows
    from search.display.sweep_list import describe_sweeps
    from search.display.tables import SweepRow, make_console, sweeps_table
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
    from search.display.tables import leaderboard

    result = search.open(name, storage=storage, tracking_uri=tracking_uri, experiment=experiment)
    if trial is not None:
        from search.display.one_trial import describe_trial, find_trial

        if as_json or as_csv:
            raise UserError("--json and --csv: they give all trials. Leave the number of the trial out.")
        result.console.print(describe_trial(result.record, find_trial(result.record, trial)))
        return
    if as_json or as_csv:
        from search.display.records import TrialRow, describe_sweep, to_csv, to_json

        table = describe_sweep(result.record)
        print(to_json(table) if as_json else to_csv(table.trials, TrialRow).rstrip())
        return
    result.console.print(leaderboard(result.record.trials, limit=limit))


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
