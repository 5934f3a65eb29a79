"""Commands that start, continue and remove sweeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

import search
from ledger import EXPERIMENT, TRACKING_URI
from search.arguments import VERBOSE
from search.cli.options import Name, Storage, options_of
from search.sweep_options import STORAGE, ResumeOptions, SweepOptions
from training.errors import UserError

Quiet = Annotated[bool, typer.Option("--quiet", help="Print the results only, no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Also print the logs of the trials and of Ray, for the search for a fault.")
]


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


@options_of(ResumeOptions)
def resume(*, quiet: Quiet = False, verbose: Verbose = False, **given: Any) -> None:
    """Continue an interrupted sweep from its ledger, also on other machines; with `--trials`, add trials to any sweep."""
    _search(search.resume, given, quiet, verbose)


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
        raise UserError(f"{name} is running. Stop it first: sweep stop {folder.called}.")
    if yes or typer.confirm(f"Remove {folder.path} and all weights in it?"):
        stays = folder.remove()
        print(f"Removed {folder.path}; its runs in MLflow are still there.")
        if stays:
            print(f"What no sweep makes stays there: {', '.join(path.name for path in stays[:5])}.")
