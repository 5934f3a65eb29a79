"""All sweeps of a storage folder as one page, with a link to the dashboard of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from analysis.report.page import ASSETS, render_template
from ledger.folder import SweepFolder, list_folders, open_folder
from ledger.formatting import format_score, mask_secrets
from ledger.names import check_name
from search.dashboard.app import make_app
from search.dashboard.live_sweep import LiveSweep
from search.display.recipe_text import format_state
from search.display.tables.sweeps_table import SweepRow, describe_sweeps
from training.errors import UserError


def make_sweeps_app(storage: Path, files: Sequence[str] = ()) -> Starlette:
    """Return the application of a storage folder; `files` have own techniques. A `Guard` should stand before it."""
    known = KnownSweeps(storage)
    dashboards: dict[str, Starlette] = {}

    async def show_page(request: Request) -> Response:
        rows, problems = await run_in_threadpool(known.describe)
        return HTMLResponse(render_template("sweeps.html.j2", title="Sweeps", rows=rows, problems=problems))

    async def send_script(request: Request) -> Response:
        texts = [(ASSETS / name).read_text(encoding="utf-8") for name in ("sortable.js", "sweeps.js")]
        return Response("\n".join(["(() => {", '"use strict";', *texts, "})();"]), media_type="text/javascript")

    async def show_dashboard(scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        if name not in dashboards:
            try:
                live = LiveSweep(open_folder(storage, check_name(name)), files)
            except UserError as error:
                await PlainTextResponse(f"{mask_secrets(str(error))}\n", status_code=404)(scope, receive, send)
                return
            dashboards[name] = make_app(live, home="../../")
        await dashboards[name](scope, receive, send)

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/sweeps.js", send_script),
            Mount("/sweeps/{name}", show_dashboard),
        ]
    )


class KnownSweeps:
    """The sweeps of a storage folder. A ledger is read again only when it has changed."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.known: dict[tuple[str, float, int, bool], tuple[list[SweepRow], list[str]]] = {}

    def describe(self) -> tuple[list[list[tuple[str, str]]], list[str]]:
        """Return the cells of each sweep, each with its text and what it is sorted by; and what cannot be read."""
        before, self.known = self.known, {}
        for folder in list_folders(self.storage):
            key = _mark(folder)
            self.known[key] = before[key] if key in before else describe_sweeps([folder])
        newest = sorted((row for rows, _ in self.known.values() for row in rows), key=lambda row: -row.started)
        problems = [mask_secrets(problem) for _, found in self.known.values() for problem in found]
        return [_list_cells(row) for row in newest], problems


def _mark(folder: SweepFolder) -> tuple[str, float, int, bool]:
    """Return what changes with the state of a sweep."""
    facts = folder.ledger.stat() if folder.ledger.is_file() else None
    return folder.name, facts.st_mtime if facts else 0.0, facts.st_size if facts else 0, folder.is_running()


def _list_cells(row: SweepRow) -> list[tuple[str, str]]:
    state, score = format_state(row.state), "" if row.score is None else str(row.score)
    return [
        (row.name, row.name),
        (state, state),
        (f"{row.done} of {row.total}", str(row.done)),
        (format_score(row.metric, row.score, row.standard_error), score),
        (row.metric, row.metric),
        (time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started)), str(row.started)),
        (mask_secrets(row.notes), row.notes),
    ]
