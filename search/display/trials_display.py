"""The trials of a running sweep: redrawn in place in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ledger.events import AnyEvent, EpochReported, TrialEnded, TrialLost
from ledger.formatting import format_score, format_seconds, plural
from ledger.recipe_text import baseline_of, cut, describe_recipe, format_counts, format_state
from ledger.trials import UNFINISHED, Trial, Trials
from search.core.pace import describe_left

if TYPE_CHECKING:
    from search.core.controller import Controller

RATE = 1  # redraws per second
HEARTBEAT_SECONDS = 60
RUNNING = 8  # running trials shown at most
INDENT = 9


class TrialsDisplay:
    """Shows a controller's trials while the sweep runs.

    `seconds_left` is what is left of a time budget, and `began` when the command did, by the monotonic clock.
    """

    def __init__(
        self,
        controller: Controller,
        console: Console,
        slots: Callable[[], int],
        seconds_left: Callable[[], float] | None = None,
        began: float | None = None,
        is_live: bool | None = None,
    ) -> None:
        self.controller = controller
        self.console = console
        self.is_live = console.is_interactive if is_live is None else is_live
        self.slots = slots
        self.seconds_left = seconds_left
        self.began = time.monotonic() if began is None else began
        self.spoke = time.monotonic()
        self.reasons: set[str] = set()  # reasons of failures that were printed already
        self.saw_epoch = False
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if self.is_live:
            self.live = Live(get_renderable=self.render, console=self.console, refresh_per_second=RATE, transient=True)
            self.live.start()
        else:
            self.say(f"Up to {plural(self.slots(), 'trial')} at a time; each prints a line when it ends.")
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()
            self.live = None
        if len(trials := self._snapshot()):
            self.say(
                f"{plural(len(trials), 'trial')} after {format_seconds(time.monotonic() - self.began)}: {format_counts(trials)}"
            )

    def say(self, text: str) -> None:
        """Print a line that stays. In a terminal it stands above the live part."""
        self.spoke = time.monotonic()
        self.console.print(Text(text), soft_wrap=not self.is_live)

    def __call__(self, event: AnyEvent) -> None:
        """Update the display for one event of the controller."""
        if isinstance(event, EpochReported) and not self.saw_epoch:
            self._describe_first(event)
        if isinstance(event, TrialEnded):
            self._end(self.controller.trials.by_number[event.trial])
        elif isinstance(event, TrialLost):
            trial = self.controller.trials.by_number[event.trial]
            what = {"preemption": "lost its machine", "worker": "lost its worker", "share": "waits"}[event.cause]
            what += f" {trial.host}" if trial.host and event.cause == "preemption" else ""
            self.say(f"{trial.name} {what}, and keeps {plural(trial.epoch, 'epoch')}: {event.reason}")
        elif self.live is None and time.monotonic() - self.spoke >= HEARTBEAT_SECONDS:
            trials = self._snapshot()
            self.say(f"{len(_ended(trials))}/{self.controller.budget} trials done: {format_counts(trials)}")

    def _describe_first(self, event: EpochReported) -> None:
        """Without a live part, print a line for the first epoch: until then new workers import PyTorch."""
        self.saw_epoch = True
        if self.live is None:
            seconds, metric = format_seconds(time.monotonic() - self.began), self.controller.trials.metric
            score = format_score(metric, event.score)
            self.say(f"[{seconds}] The first epoch is done: trial {event.trial:04d} is at {score}.")

    def _end(self, trial: Trial) -> None:
        """Print a line for each trial; with a live part only for failures, and each reason once."""
        if self.live:
            if trial.state in ("failed", "out_of_memory") and trial.reason not in self.reasons:
                self.reasons.add(trial.reason)
                self.say(f"{trial.name} {format_state(trial.state)}: {trial.reason}")
            return
        trials = self._snapshot()
        score = format_score(trials.metric, trial.score, trial.standard_error if trial.reports else None)
        text = f"[{len(_ended(trials))}/{self.controller.budget}] {trial.name} {format_state(trial.state)}, {score}, "
        text += f"{trial.epoch}/{trial.epochs} epochs, {describe_recipe(trial, baseline_of(trials))}"
        self.say(text + (f" ({trial.reason})" if trial.reason else ""))

    def _snapshot(self) -> Trials:
        """Copy the trials as they are now, because the main thread keeps changing the controller's."""
        trials = Trials(self.controller.trials.metric)
        trials.by_number = dict(self.controller.trials.by_number)
        return trials

    def render(self) -> RenderableType:
        """Return the live part. The thread that redraws calls this."""
        trials, width = self._snapshot(), self.console.width
        running = [trial for trial in trials if trial.state == "running"]
        above = [
            Text(f"{format_counts(trials) or 'the first trials start'}, of {self.controller.budget}"),
            self._render_bar(trials, width),
            self._render_best(trials, width),
        ]
        # One line counts the trials that are not shown, and one is for the cursor.
        room = max(1, min(RUNNING, self.console.height - len(above) - 2))
        return Group(*above, *self._render_running(running, room, trials.metric))

    def _render_bar(self, trials: Trials, width: int) -> RenderableType:
        done, budget, now = len(_ended(trials)), self.controller.budget, time.time()
        words = f"{done}/{budget} trials · {format_seconds(time.monotonic() - self.began)}"
        left = describe_left(list(trials), budget, self.slots(), self.seconds_left and self.seconds_left(), now)
        words += f" · {left}" if left else ""
        grid = Table.grid(padding=(0, 2, 0, 0))
        room = max(10, min(60, width - 52))
        grid.add_row(ProgressBar(total=budget, completed=done, width=room), Text(words, no_wrap=True))
        return grid

    def _render_best(self, trials: Trials, width: int) -> Text:
        best = trials.best()
        if best is None:
            ahead = "".join(
                f"; ahead is {t.name} at {format_score(trials.metric, t.score)}" for t in trials.ranked()[:1]
            )
            return _line("best", f"no trial has completed yet{ahead}")
        head = f"{format_score(trials.metric, best.score, best.standard_error)}  {best.name}  "
        return _line("best", head + cut(describe_recipe(best, baseline_of(trials)), width - INDENT - len(head)))

    def _render_running(self, running: list[Trial], room: int, metric: str) -> list[Text]:
        told = (f"{t.name} {f'{t.epoch}/{t.epochs}':>8}  {format_score(metric, t.score):>7}" for t in running[:room])
        lines = [_line("" if number else "running", text) for number, text in enumerate(told)]
        # Blank lines keep the height constant between the end of one trial and the start of the next.
        lines += [Text("")] * (min(room, self.slots()) - len(lines))
        return [*lines, _line("", f"… and {len(running) - room} more")] if len(running) > room else lines


def _line(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{INDENT}}", "dim"), text, no_wrap=True, overflow="ellipsis")


def _ended(trials: Trials) -> list[Trial]:
    return [trial for trial in trials if trial.state not in UNFINISHED]
