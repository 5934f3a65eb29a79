"""Commands that reach into a running sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis import EXPERIMENT
from search.arguments import absolute_uri
from search.cli.options import STORAGE, Experiment, FromStore, Name, Storage, With
from search.storage.names import check_name

if TYPE_CHECKING:
    from search.followup.requests import Target


def stop(
    name: Name,
    trial: Annotated[
        str | None, typer.Option(help="End only this trial, such as 0007, after its current epoch.")
    ] = None,
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    experiment: Experiment = EXPERIMENT,
) -> None:
    """End a running sweep as Ctrl-C would, or one of its trials. With --tracking-uri also from another machine.

    A sweep that was ended can be resumed. A trial that was ended counts as stopped.
    """
    if trial is not None:
        from search.followup.requests import request_stop as request_end_of_trial

        print(request_end_of_trial(_find(name, storage, tracking_uri, experiment), trial))
        return
    if tracking_uri is not None:
        from search.tracking.remote import request_stop

        request_stop(absolute_uri(tracking_uri), experiment, check_name(name))
        print(f"{name} will end when its driver has read the request, within about 10 seconds.")
        return
    from search.followup.requests import request_end
    from search.storage.folder import open_folder

    print(request_end(open_folder(storage.absolute(), name)))


def pause(
    name: Name, storage: Storage = STORAGE, tracking_uri: FromStore = None, experiment: Experiment = EXPERIMENT
) -> None:
    """Start no new trials of a running sweep; its running trials go on to their end. `sweep unpause` ends the pause.

    With --tracking-uri also from another machine. A resume ends the pause too.
    """
    from search.followup.requests import request_pause

    print(request_pause(_find(name, storage, tracking_uri, experiment), True))


def unpause(
    name: Name, storage: Storage = STORAGE, tracking_uri: FromStore = None, experiment: Experiment = EXPERIMENT
) -> None:
    """Let a paused sweep start new trials again. With --tracking-uri also from another machine."""
    from search.followup.requests import request_pause

    print(request_pause(_find(name, storage, tracking_uri, experiment), False))


def add(
    name: Name,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE.yaml|PATH=VALUE...",
            help="A recipe's file, and values to set in it; without a file, the values change the baseline.",
        ),
    ],
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    experiment: Experiment = EXPERIMENT,
    with_: With = None,
) -> None:
    """Add one recipe to a sweep as one more trial, also while it runs. With --tracking-uri also from another machine.

    The recipe may lie outside the space, but it has the data of the sweep.
    """
    from search.followup.requests import request_trial

    print(request_trial(_find(name, storage, tracking_uri, experiment), values))


def note(
    name: Name,
    text: Annotated[str, typer.Argument(help="The note; `list`, `show` and `report` show it.")],
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    experiment: Experiment = EXPERIMENT,
) -> None:
    """Add a note to a sweep, also while it runs. With --tracking-uri also from another machine."""
    from search.followup.requests import add_note

    print(add_note(_find(name, storage, tracking_uri, experiment), text))


def _find(name: str, storage: Path, tracking_uri: str | None, experiment: str) -> Target:
    from search.followup.requests import Target

    return Target.find(
        storage.absolute(), name, None if tracking_uri is None else absolute_uri(tracking_uri), experiment
    )
