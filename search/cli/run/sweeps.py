"""Commands that start, continue and remove sweeps, and those that reach into a running one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

import search
from ledger import EXPERIMENT, TRACKING_URI
from search.arguments import VERBOSE
from search.cli.options import Name, Plugins, Storage, open_sweep, options_of
from search.sweep_options import STORAGE, ResumeOptions, SweepOptions, SweepPlace, complete_field, complete_trial
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
        from search.checks import print_checks

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
    if quiet and verbose:
        raise UserError("--quiet and --verbose: choose one of them.")
    from search.display.terminal import make_console

    console = make_console()
    console.quiet = quiet
    if verbose:
        os.environ[VERBOSE] = "1"
    result = function(**given, console=console)
    from search.cli.run.conclusion import conclude  # imports libraries that take seconds

    console.quiet = False
    conclude(result, publish)


@options_of(SweepPlace)
def stop(
    *,
    trial: Annotated[
        str | None,
        typer.Option(help="End only this trial, such as 0007, after its current epoch.", autocompletion=complete_trial),
    ] = None,
    **place: Any,
) -> None:
    """Stop a running sweep as Ctrl-C does, or one of its trials.

    A sweep that was ended can be resumed. A trial that was ended counts as stopped.
    """
    from search.evaluation.requests import request_end, request_stop

    if trial is not None:
        print(request_stop(open_sweep(**place), trial))
    else:
        print(request_end(place["storage"].absolute(), place["name"]))


@options_of(SweepPlace)
def add(
    *,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE.yaml|PATH=VALUE...",
            help="A recipe's file, and values to set in it; what neither has is as in the sweep's baseline.",
            autocompletion=complete_field,
        ),
    ],
    full: Annotated[bool, typer.Option("--full", help="Let the trial run to its end: ASHA does not stop it.")] = False,
    plugins: Plugins = None,
    **place: Any,
) -> None:
    """Add one recipe to a sweep as one more trial, also while it runs.

    The recipe may lie outside the space, but it has the data of the sweep.
    """
    from search.evaluation.requests import request_trial

    print(request_trial(open_sweep(**place), values, full))


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
