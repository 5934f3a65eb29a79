"""Commands that reach into a running sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import Plugins, options_of
from search.sweep_options import SweepPlace, complete_field, complete_trial

if TYPE_CHECKING:
    from search.evaluation.requests import Target


@options_of(SweepPlace)
def stop(
    *,
    trial: Annotated[
        str | None,
        typer.Option(help="End only this trial, such as 0007, after its current epoch.", autocompletion=complete_trial),
    ] = None,
    **place: Any,
) -> None:
    """Stop a running sweep as Ctrl-C does, or one of its trials. With --from also from another machine.

    A sweep that was ended can be resumed. A trial that was ended counts as stopped.
    """
    from search.evaluation.requests import request_end, request_stop

    if trial is not None:
        print(request_stop(_find(**place), trial))
    else:
        print(request_end(place["storage"].absolute(), place["name"], place["tracking_uri"]))


@options_of(SweepPlace)
def pause(**place: Any) -> None:
    """Pause a running sweep: no new trial starts, and running trials finish. `sweep unpause` ends the pause.

    With --from also from another machine. A resume ends the pause too.
    """
    from search.evaluation.requests import request_pause

    print(request_pause(_find(**place), True))


@options_of(SweepPlace)
def unpause(**place: Any) -> None:
    """Let a paused sweep start new trials again. With --from also from another machine."""
    from search.evaluation.requests import request_pause

    print(request_pause(_find(**place), False))


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
    """Add one recipe to a sweep as one more trial, also while it runs. With --from also from another machine.

    The recipe may lie outside the space, but it has the data of the sweep.
    """
    from search.evaluation.requests import request_trial

    print(request_trial(_find(**place), values, full))


@options_of(SweepPlace)
def note(
    *, text: Annotated[str, typer.Argument(help="The note; `list`, `show` and `report` show it.")], **place: Any
) -> None:
    """Add a note to a sweep, also while it runs. With --from also from another machine."""
    from search.evaluation.requests import add_note

    print(add_note(_find(**place), text))


def _find(name: str, storage: Path, tracking_uri: str | None) -> Target:
    from search.evaluation.requests import Target

    return Target.find(storage.absolute(), name, tracking_uri)
