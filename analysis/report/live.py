"""The part of a report that changes while its sweep runs; it is made anew each time that the page is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.page import render_template

PLACE = "<!-- live -->"  # in a page that is otherwise complete; no name or note can have it, because texts are escaped


@dataclass(frozen=True)
class Worker:
    """One place for a trial; `trial` is None while it is free."""

    trial: str | None = None
    epoch: int = 0
    epochs: int = 0
    score: str = ""


@dataclass(frozen=True)
class Live:
    """What a running sweep does now."""

    name: str
    state: str
    done: int
    budget: int
    counts: str
    elapsed: str
    time_left: str
    machine: str
    workers: Sequence[Worker] = ()


def put_live(page: str, live: Live, seconds: float) -> str:
    """Complete a page of `render_live`; every so many seconds it then asks the browser for a newer one."""
    return page.replace(PLACE, render_template("live.html.j2", live=live, now=time.time(), seconds=seconds))
