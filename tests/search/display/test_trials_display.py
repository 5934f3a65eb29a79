"""The display of a running sweep, in a terminal and elsewhere."""

import io
import threading
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from ledger.trials import Trials
from search.core.pace import describe_left, estimate_left
from search.display.one_trial import draw_curve
from search.display.trials_display import HEARTBEAT_SECONDS, TrialsDisplay
from tests.made_events import make_event
from training.recipe import Recipe

RECIPE = Recipe(epochs=27).model_dump()
BETTER = Recipe(epochs=27, batch_size=64).model_dump()


class Sweep:
    """The parts of a controller that Progress reads."""

    def __init__(self, metric="val_accuracy", budget=16):
        self.controller = SimpleNamespace(trials=Trials(metric), budget=budget)
        self.listeners = []
        self.now = time.time() - 100

    def record(self, event, trial, **rest):
        record = make_event({"event": event, "trial": trial, "time": self.now, **rest})
        self.controller.trials.fold(record)
        for listener in self.listeners:
            listener(record)

    def start(self, trial, origin="sampler", recipe=RECIPE):
        self.record("start", trial, origin=origin, recipe=recipe, params={})

    def report(self, trial, epoch, score):
        self.record("report", trial, epoch=epoch, score=score, standard_error=0.013, best_epoch=1, metrics={})

    def end(self, trial, state, reason=""):
        self.record("end", trial, state=state, reason=reason)


def make_console(width=80, height=24, terminal=True):
    return Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=terminal,
        force_interactive=terminal,
        color_system=None,
    )


def draw(sweep, width=80, height=24, slots=lambda: 2):
    """The live part as lines."""
    progress = TrialsDisplay(sweep.controller, console=make_console(width, height), slots=slots)
    console = make_console(width, height)
    console.print(progress.render())
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= height
    assert [line for line in lines if not (len(line) <= width)] == []
    return [" ".join(line.split()) for line in lines]


def play(sweep, **options):
    """A sweep's lines where output is no terminal."""
    console = make_console(terminal=False)
    progress = TrialsDisplay(sweep.controller, console=console, slots=lambda: 2, **options)
    sweep.listeners.append(progress)
    return progress, lambda: console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_shows_counts_the_best_trial_and_running_trials(width):
    sweep = Sweep()
    sweep.start(0, "baseline")
    sweep.start(1, recipe=BETTER)
    for epoch in range(1, 28):
        sweep.report(1, epoch, 0.934)
    sweep.end(1, "completed")
    sweep.report(0, 1, 0.5)
    lines = draw(sweep, width)
    assert lines[0] == "running 1 · completed 1, of 16"
    assert "1/16 trials" in lines[1]
    assert "best 93.4 ± 1.3 % 0001 batch_size=64" in lines
    assert "running 0000 1/27 50.0 %" in lines


def test_a_lost_machine_is_one_line():
    sweep = Sweep()
    _, lines = play(sweep)
    sweep.start(3)
    sweep.report(3, 1, 0.5)
    sweep.record("lost", 3, cause="preemption", reason="its node has died")
    sweep.record("lost", 3, cause="worker", reason="the worker died")
    assert lines()[1:] == [
        "0003 lost its machine, and keeps 1 epoch: its node has died",
        "0003 lost its worker, and keeps 1 epoch: the worker died",
    ]


@pytest.mark.parametrize("state", ["failed", "diverged", "stopped"])
def test_a_sweep_without_a_completed_trial_has_no_best(state):
    sweep = Sweep("val_loss")
    assert "best no trial has completed yet" in draw(sweep)
    for trial in range(5):
        sweep.start(trial)
        sweep.end(trial, state)
    assert "best no trial has completed yet" in draw(sweep)
    sweep.start(5)
    sweep.report(5, 1, 0.4)
    assert "best no trial has completed yet; ahead is 0005 at 0.400" in draw(sweep)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (80, 12)])
def test_a_thousand_trials_are_drawn_quickly_and_fit_the_height(width, height):
    sweep = Sweep(budget=1000)
    for trial in range(1000):
        sweep.start(trial, recipe=BETTER)
        sweep.report(trial, 1, trial / 1000)
        if trial >= 20:
            sweep.end(trial, "stopped")
    started = time.thread_time()
    lines = draw(sweep, width, height, slots=lambda: 20)
    assert time.thread_time() - started < 0.5
    assert lines[0] == "running 20 · stopped 980, of 1000"
    assert lines[-1] == ("… and 12 more" if height > 12 else "… and 13 more")


def test_the_height_stays_while_one_trial_ends_and_the_next_begins():
    sweep = Sweep()
    sweep.start(0)
    sweep.start(1)
    before = len(draw(sweep))
    sweep.end(1, "stopped")
    assert len(draw(sweep)) == before


def test_drawing_works_while_trials_start():
    sweep = Sweep(budget=5000)
    progress = TrialsDisplay(sweep.controller, console=make_console(), slots=lambda: 2)
    sweep.listeners.append(progress)
    adding = threading.Thread(
        target=lambda: [sweep.start(trial) or sweep.report(trial, 1, 0.5) for trial in range(2000)]
    )
    adding.start()
    while adding.is_alive():
        make_console().print(progress.render())
    adding.join()


def test_a_live_display_prints_each_reason_of_failure_once_and_clears_the_rest():
    sweep = Sweep()
    console = make_console()
    with TrialsDisplay(sweep.controller, console=console, slots=lambda: 2) as progress:
        sweep.listeners.append(progress)
        progress.say("Starting Ray …")
        for trial in range(3):
            sweep.start(trial)
            sweep.end(trial, "failed", "the disk is full")
    text = console.file.getvalue()
    assert "Starting Ray …" in text
    assert text.count("0000 failed: the disk is full") == 1
    assert "0001 failed" not in text
    assert ": failed 3" in text


def test_after_a_resume_the_clock_is_that_of_the_command():
    sweep = Sweep()
    sweep.start(0, "baseline")
    sweep.report(0, 1, 0.5)
    progress, read = play(sweep, began=time.monotonic() - 90)
    with progress:
        sweep.report(0, 2, 0.9)
    assert read()[1] == "[1 min 30 s] The first epoch is done: trial 0000 is at 90.0 %."
    assert read()[2].startswith("1 trial after 1 min 30 s")


def test_without_a_terminal_there_is_a_line_for_the_first_epoch_and_for_the_end_of_each_trial():
    sweep = Sweep()
    progress, read = play(sweep)
    with progress:
        sweep.start(0, "baseline")
        sweep.start(1, recipe=BETTER)
        sweep.report(0, 1, 0.9)
        sweep.report(1, 1, 0.934)
        sweep.end(1, "stopped")
        sweep.end(0, "failed", "out of luck")
    opening, first, *lines = read()
    assert opening == "Up to 2 trials at a time; each prints a line when it ends."
    assert first == "[0 s] The first epoch is done: trial 0000 is at 90.0 %."
    assert lines[0] == "[1/16] 0001 stopped, 93.4 ± 1.3 %, 1/27 epochs, batch_size=64"
    assert lines[1] == "[2/16] 0000 failed, 90.0 ± 1.3 %, 1/27 epochs, baseline (out of luck)"
    assert lines[2].endswith("stopped 1 · failed 1")
    assert len(lines) == 3


def test_without_a_terminal_a_line_of_progress_appears_once_a_minute():
    sweep = Sweep()
    progress, read = play(sweep)
    sweep.start(0)
    sweep.report(0, 1, 0.9)
    progress.spoke -= HEARTBEAT_SECONDS
    sweep.report(0, 2, 0.9)
    sweep.report(0, 3, 0.9)
    assert read()[1:] == ["0/16 trials done: running 1"]


def train_two(*ends, origin="sampler"):
    """Two trials on two slots, each with 10 epochs in 100 s; `ends` are their states."""
    sweep = Sweep()
    for trial in range(2):
        sweep.now = 0.0
        sweep.start(trial, origin)
        sweep.now = 100.0
        sweep.report(trial, 10, 0.5)
    for trial, state in enumerate(ends):
        sweep.end(trial, state)
    return list(sweep.controller.trials)


def test_nothing_is_estimated_before_a_trial_has_ended():
    assert describe_left(train_two(), 16, 2, None, now=100.0) == ""


def test_time_left_follows_from_the_lengths_of_ended_trials_and_the_slots():
    trials = train_two("stopped", "stopped")
    # Four trials of 100 s each on two slots.
    assert estimate_left(trials, 6, 2, now=100.0) == pytest.approx(200)
    assert describe_left(trials, 6, 2, None, now=100.0) == "about 3 min 20 s left"


@pytest.mark.parametrize(("origin", "now", "left"), [("sampler", 60, 40), ("sampler", 100, 170), ("baseline", 60, 102)])
def test_a_running_trial_ends_like_those_that_took_longer_or_with_all_of_its_epochs(origin, now, left):
    ended, running = train_two("stopped")
    assert running.epochs == 27
    ended.origin, running.origin = "sampler", origin
    assert estimate_left([ended, running], 2, 2, now=now) == pytest.approx(left)


def test_an_interruption_is_not_the_length_of_a_trial():
    trials = train_two("stopped", "stopped")
    for trial in trials:
        trial.resumes, trial.reports[-1].metrics["train_seconds"] = 1, 30.0
    assert estimate_left(trials, 4, 2, now=9999.0) == pytest.approx(30)


def test_a_time_budget_that_ends_sooner_is_shown_as_the_time_left():
    trials = train_two("stopped", "stopped")
    assert describe_left(trials, 6, 2, 50.0, now=100.0) == "time budget ends in 50 s"
    assert describe_left(trials[:0], 6, 2, 50.0, now=100.0) == "time budget ends in 50 s"
    assert describe_left(trials, 6, 2, 500.0, now=100.0) == "about 3 min 20 s left"


def test_the_curve_of_a_trial_has_one_character_for_some_epochs():
    assert draw_curve((1.0, 0.5, 0.0), 0, 1) == "█▅▁"
    assert len(draw_curve(tuple(range(1, 1001)), 0, 1000)) == 60
