"""Commands that plan, start, continue, remove and repair sweeps."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Annotated, Any

import typer

import search
from ledger import EXPERIMENT, TRACKING_URI
from search.arguments import VERBOSE
from search.cli.options import (
    AsJson,
    Name,
    Plugins,
    Storage,
    list_options,
    options_of,
)
from search.sweep_options import STORAGE, PlanOptions, ResumeOptions, SweepOptions
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


@options_of(SweepOptions, tracking_uri=TRACKING_URI, experiment=EXPERIMENT)
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
    conclude(result, publish)


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
