"""Commands that reach into a running sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import Plugins, options_of
from search.sweep_options import SweepPlace, complete_field, complete_trial

if TYPE_CHECKING:
    from ledger.record import SweepRecord


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
        print(request_stop(_open(**place), trial))
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

    print(request_trial(_open(**place), values, full))


def _open(name: str, storage: Path) -> SweepRecord:
    from ledger.folder import open_folder
    from ledger.record import SweepRecord

    return SweepRecord.open(open_folder(storage.absolute(), name))
