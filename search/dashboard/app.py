"""The pages and answers of the dashboard, as an ASGI application."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from analysis.formatting import mask_secrets
from analysis.report.page import ASSETS, render_template
from search.dashboard.findings import Findings
from search.dashboard.live_sweep import LiveSweep
from spaces.load import dump_recipe
from training.errors import UserError

SCRIPTS = ("charts", "controls", "trial", "table", "live/requests", "live/top", "live/dashboard")
LOG_BYTES = 64 * 1024  # of the end of a log
REFUSED = 409


@dataclass(frozen=True)
class Parts:
    """What the application shows and does."""

    live: LiveSweep
    findings: Findings
    carry_out: Callable[[dict], str]  # what a button asks for; returns a sentence, or raises UserError


def make_app(parts: Parts) -> Starlette:
    """Return the application; a `Guard` should stand before it."""
    live = parts.live
    page = render_template("dashboard.html.j2", title=live.folder.name)
    script = make_script()

    async def show_page(request: Request) -> Response:
        return HTMLResponse(page)

    async def send_script(request: Request) -> Response:
        return Response(script, media_type="text/javascript")

    async def send_library(request: Request) -> Response:
        library = (ASSETS / "echarts.min.js").read_text(encoding="utf-8")
        return Response(library, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    async def describe_state(request: Request) -> Response:
        session = request.query_params.get("session", "")
        is_filling = request.query_params.get("filling") == "1"
        return await run_in_threadpool(lambda: _to_json(live.describe(_read_since(request), session, is_filling)))

    async def describe_findings(request: Request) -> Response:
        return _to_json(parts.findings.describe(_read_since(request)))

    async def send_log(request: Request) -> Response:
        return PlainTextResponse(await run_in_threadpool(read_log, live.folder.trial(request.path_params["number"])))

    async def send_recipe(request: Request) -> Response:
        trial = live.fold.trials.by_number.get(request.path_params["number"])
        return PlainTextResponse(dump_recipe(trial.recipe) if trial else "", status_code=200 if trial else 404)

    async def take_request(request: Request) -> Response:
        body = await request.body()
        try:
            sentence = await run_in_threadpool(lambda: parts.carry_out(_read_values(body)))
        except UserError as error:
            return JSONResponse({"sentence": mask_secrets(str(error))}, status_code=REFUSED)
        return JSONResponse({"sentence": sentence})

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/dashboard.js", send_script),
            Route("/echarts.js", send_library),
            Route("/state", describe_state),
            Route("/findings", describe_findings),
            Route("/trials/{number:int}/log", send_log),
            Route("/trials/{number:int}/recipe", send_recipe),
            Route("/requests", take_request, methods=["POST"]),
        ]
    )


def make_script() -> str:
    """Return the scripts of the page as one; together they share names that no other script sees."""
    texts = [(ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(["(async () => {", '"use strict";', *texts, "})();"])


def read_log(folder: Path) -> str:
    """Return the end of a trial's log, with masked secrets; a sentence if there is none."""
    try:
        with (folder / "log.txt").open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return "This trial has no log here."
    return mask_secrets(text if size <= LOG_BYTES else text.partition("\n")[2])


def _read_values(body: bytes) -> dict:
    """Return what a button sent.

    Raises:
        UserError: this is not a JSON object.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UserError("the request is not a JSON object, as the dashboard's own page sends it. Load the page again.")
    return values


def _read_since(request: Request) -> int:
    since = request.query_params.get("since", "0")
    return int(since) if since.isascii() and since.isdecimal() else 0


def _to_json(values: dict) -> Response:
    return Response(json.dumps(values, separators=(",", ":"), allow_nan=False), media_type="application/json")
