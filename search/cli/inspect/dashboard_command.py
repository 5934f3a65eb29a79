"""`sweep dashboard`: a sweep in the browser, while it runs and after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search.arguments import absolute_uri
from search.cli.options import FromStore, Plugins, Storage
from search.runner.interrupt import until_ctrl_c
from search.sweep_options import STORAGE, complete_name
from training.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def dashboard(
    name: Annotated[
        str | None, typer.Argument(help="Name of a sweep. Default: a list of all.", autocompletion=complete_name)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; `0.0.0.0` also accepts other machines, with a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port; if it is in use, the next free one is used. `0` chooses a free one."
        ),
    ] = 8270,
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    plugins: Plugins = None,
) -> None:
    """Show a sweep in the browser while it runs: trials, workers, curves, logs; stop, add, pause, extend and end.

    Without a name, the page lists all sweeps of the storage folder, with a link to each.
    """
    from analysis.web_server import open_socket
    from search.dashboard.serve import PORTS, serve

    what, app = _find_app(name, storage.absolute(), tracking_uri, plugins or [])
    with until_ctrl_c():
        serve(app, what, open_socket(host, port, PORTS))


def _find_app(name: str | None, storage: Path, uri: str | None, files: list[str]) -> tuple[str, ASGIApp]:
    """Return what is shown, as words, and its application."""
    from ledger.folder import list_folders, open_folder
    from ledger.names import check_name
    from search.dashboard.app import make_app
    from search.dashboard.live_sweep import LiveSweep, follow_store

    if name is not None:
        if uri is None:
            live = LiveSweep(open_folder(storage, name), files)
        else:
            live = follow_store(absolute_uri(uri), check_name(name), files)
        return f"Dashboard of {name}", make_app(live)
    if uri is not None:
        raise UserError(f"--from={uri}: name the sweep; sweep list --from {uri} shows them.")
    from search.dashboard.sweeps_page import make_sweeps_app

    if not list_folders(storage):
        raise UserError(f"--storage={storage}: there is no sweep. Start one with sweep run, or name another folder.")
    return "Dashboard of all sweeps", make_sweeps_app(storage, files)
