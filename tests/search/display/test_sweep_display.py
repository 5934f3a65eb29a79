"""The display of a start: its phases and their times."""

import io
import re

import pytest
from rich.console import Console

from search.display import sweep_display
from search.display.sweep_display import SweepDisplay


def make_console(terminal, width=80):
    return Console(
        file=io.StringIO(), width=width, force_terminal=terminal, force_interactive=terminal, color_system=None
    )


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(sweep_display.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_each_phase_is_a_line_with_the_time_since_the_start(clock):
    console = make_console(terminal=False)
    shown = SweepDisplay(console)
    with shown.start():
        shown.phase("checking the data")
        clock[0] += 12
        shown.phase("starting Ray")
    assert console.file.getvalue().splitlines() == ["[0 s] checking the data", "[12 s] starting Ray"]


def test_beside_a_debugger_a_terminal_gets_lines_too(clock):
    console = make_console(terminal=True)
    shown = SweepDisplay(console, is_live=False)
    with shown.start():
        shown.phase("checking the data")
    assert console.file.getvalue() == "[0 s] checking the data\n"


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_shows_the_time_of_each_phase(clock, width):
    console = make_console(terminal=True, width=width)
    shown = SweepDisplay(console)
    with shown.start():
        shown.phase("checking [the] data")
        clock[0] += 3
        shown.phase("starting Ray")
        clock[0] += 20
    clock[0] += 100
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9?]*[a-zA-Z]", "", console.file.getvalue()))
    shown_last = [" ".join(line.split()) for line in lines if line.strip()][-2:]
    assert shown_last == ["checking [the] data 0:00:03", "starting Ray 0:00:20"]
