"""The display of a start: its phases and their times."""

import io

import pytest
from rich.console import Console

from search.display import phases
from search.display.phases import Phases


def make_console(terminal, width=80):
    return Console(
        file=io.StringIO(), width=width, force_terminal=terminal, force_interactive=terminal, color_system=None
    )


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(phases.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_each_phase_is_a_line_with_the_time_since_the_start(clock):
    console = make_console(terminal=False)
    with Phases(console) as shown:
        shown.begin("checking the data")
        clock[0] += 12
        shown.begin("starting Ray")
    assert console.file.getvalue().splitlines() == ["[0 s] checking the data", "[12 s] starting Ray"]


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_shows_the_time_of_each_phase_so_far(clock, width):
    shown = Phases(make_console(terminal=True))
    shown.began = clock[0]
    shown.live = object()  # a live display draws by itself
    shown.begin("checking the data")
    clock[0] += 3
    shown.begin("starting Ray")
    clock[0] += 20
    console = make_console(terminal=True, width=width)
    console.print(shown.render())
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines == ["checking the data 3 s", "starting Ray 20 s"]
