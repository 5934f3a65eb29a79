"""`sweep dashboard`: a sweep in the browser, while it runs and after it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis import EXPERIMENT
from search.arguments import absolute_uri
from search.cli.options import STORAGE, Experiment, FromStore, Storage, With, complete_name
from search.runner.interrupt import Interrupted
from training.errors import UserError

if TYPE_CHECKING:
    from search.dashboard.sources import Source


def dashboard(
    name: Annotated[
        str | None, typer.Argument(help="Name of a sweep. Default: the latest.", autocompletion=complete_name)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; `0.0.0.0`: also for other machines, with a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; if it is in use, the next free one is taken. `0`: a free one.")
    ] = 8270,
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    experiment: Experiment = EXPERIMENT,
    with_: With = None,
) -> None:
    """Show a sweep in the browser while it runs: trials, workers, curves, logs; stop, add, pause, extend and end."""
    from search.dashboard.serve import open_socket, serve

    try:
        serve(_find_source(name, storage.absolute(), tracking_uri, experiment, with_ or []), open_socket(host, port))
    except Interrupted as end:
        if end.number != signal.SIGINT:
            raise


def _find_source(name: str | None, storage: Path, uri: str | None, experiment: str, files: list[str]) -> Source:
    from search.dashboard.sources import FolderSource, StoreSource, find_latest
    from search.storage.folder import open_folder
    from search.storage.names import check_name

    if uri is None:
        return FolderSource(open_folder(storage, name) if name is not None else find_latest(storage), files)
    if name is None:
        raise UserError(f"--tracking-uri={uri}: name the sweep; sweep list --tracking-uri {uri} shows them.")
    return StoreSource(absolute_uri(uri), experiment, check_name(name), files)
