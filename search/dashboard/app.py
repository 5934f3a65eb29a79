"""The pages and answers of the dashboard, as an ASGI application."""

from __future__ import annotations

import json
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from analysis.report.page import ASSETS, render_template
from analysis.web_server import Refused, read_body
from ledger.formatting import mask_secrets
from search.dashboard.live_sweep import LiveSweep
from search.dashboard.serve import OpenPages
from spaces.load import dump_recipe
from training.errors import UserError
from training.process.text_files import parse_json, refuse_irregular

SCRIPTS = ("charts", "controls", "trial", "table", "live/requests", "live/top", "live/dashboard")
LOG_BYTES = 64 * 1024  # of the end of a log
REFUSED = 409


def make_app(live: LiveSweep, pages: OpenPages | None = None, home: str = "") -> Starlette:
    """Return the application of a sweep, which notes its open `pages`; a `Guard` should stand before it.

    `home` is the address of the list of all sweeps, if there is one.
    """
    pages = OpenPages() if pages is None else pages
    page = render_template("dashboard.html.j2", title=live.folder.name, home=home)
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
        pages.note(request.query_params.get("page", ""))
        return await run_in_threadpool(lambda: _to_json(live.describe(_read_since(request), session, is_filling)))

    async def describe_findings(request: Request) -> Response:
        answer = _to_json(live.findings.describe(_read_since(request)))
        if live.findings.are_complete:  # the page asks for them after the last state
            pages.leave(request.query_params.get("leaving", ""))
        return answer

    async def send_log(request: Request) -> Response:
        return PlainTextResponse(await run_in_threadpool(read_log, live.folder.trial(request.path_params["number"])))

    async def send_recipe(request: Request) -> Response:
        trial = live.state.trials.by_number.get(request.path_params["number"])
        return PlainTextResponse(dump_recipe(trial.recipe) if trial else "", status_code=200 if trial else 404)

    async def take_request(request: Request) -> Response:
        body = await read_body(request)
        try:
            sentence = await run_in_threadpool(_carry_out, live, body)
        except UserError as error:
            return _to_json({"sentence": mask_secrets(str(error))}, REFUSED)
        return _to_json({"sentence": sentence})

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
        ],
        exception_handlers={Refused: _answer_refused},
    )


def make_script() -> str:
    """Return the scripts of the page as one; together they share names that no other script sees."""
    texts = [(ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(["(async () => {", '"use strict";', *texts, "})();"])


def read_log(folder: Path) -> str:
    """Return the end of a trial's log, with masked secrets; a sentence if there is none."""
    try:
        refuse_irregular(folder / "log.txt")
        with (folder / "log.txt").open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return "This trial has no log here."
    return mask_secrets(text if size <= LOG_BYTES else text.partition("\n")[2])


def _carry_out(live: LiveSweep, body: bytes) -> str:
    """Do what a button asks for, as the command would; return a sentence for the user, or raise a UserError with one."""
    # These read recipes from text, which a page that only looks does not need.
    from search.evaluation import requests

    try:
        values = parse_json(body)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError("the request is not a JSON object, as the dashboard's own page sends it. Load the page again.")
    target = requests.Target(live.read_whole(), live.uri)
    match values.get("action"):
        case "stop":
            return requests.request_stop(target, str(values.get("trial")))
        case "add":
            return requests.request_text(target, str(values.get("recipe", "")))
        case "pause" | "continue" as action:
            return requests.request_pause(target, action == "pause")
        case "extend":
            trials = values.get("trials")
            if not isinstance(trials, int) or isinstance(trials, bool):
                raise UserError(f"trials={trials}: give a whole number.")
            return requests.request_extension(target, trials)
        case "end":
            return requests.request_end(live.folder.path.parent, live.folder.name, live.uri)
    raise UserError(f"action={values.get('action')}: choose one of stop, add, pause, continue, extend, end.")


async def _answer_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _to_json({"sentence": f"Refused: {error}."}, error.status)


def _read_since(request: Request) -> int:
    since = request.query_params.get("since", "0")
    return int(since) if since.isascii() and since.isdecimal() else 0


def _to_json(values: dict, status: int = 200) -> Response:
    # Starlette's own response cannot send half of a character, which a refused value may have.
    return Response(json.dumps(values, separators=(",", ":"), allow_nan=False), status, media_type="application/json")
