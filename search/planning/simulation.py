"""The course of a sweep without training: the real controller decides, and a model gives the time of each epoch."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ledger.events import AnyEvent
from ledger.trials import Trial
from search.core.asha import Decision
from search.core.controller import Controller
from spaces.search import NoScheduler
from spaces.space import Space
from training.loop.epoch_report import Report
from training.recipe import Recipe

# Early scores predict final ones with this standard deviation, if that of the final scores is 1; at the end with none.
EARLY_NOISE = 1.0


@dataclass(frozen=True)
class Course:
    """What a simulated sweep took."""

    seconds: float  # wall clock
    epochs: int


class _Memory:
    """A ledger without a file."""

    path = Path("simulation")

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    def append(self, event: AnyEvent) -> AnyEvent:
        self.events.append(event)
        return event


def simulate(
    space: Space,
    resolve: Callable[[Recipe], Recipe],
    time_epochs: Callable[[Recipe], tuple[float, list[float]]],
    slots: int,
    start_seconds: float,
    seed: int,
) -> Course:
    """Run a sweep with made-up scores, whose trials take the seconds of `time_epochs`: of their start, and of each epoch.

    `start_seconds` is the time until the first trial of each slot begins.
    """
    search: Any = space.search
    if search.sampler == "tpe":  # it proposes from scores, which are made up here, and takes longer
        search = search.model_copy(update={"sampler": "random"})
    ledger: Any = _Memory()
    controller = Controller(replace(space, search=search), ledger, seed=seed, resolve=resolve)
    rng = np.random.default_rng(seed)
    times: dict[int, tuple[float, list[float]]] = {}
    finals: dict[int, float] = {}
    free, running, now = [start_seconds] * slots, list[tuple[float, int]](), 0.0

    def begin() -> bool:
        trial = controller.next_trial()
        if trial is None:
            return False
        if trial.number not in times:
            times[trial.number] = time_epochs(trial.recipe)
            finals[trial.number] = rng.normal()
        setup, epochs = times[trial.number]
        heapq.heappush(running, (max(now, free.pop(0)) + setup + epochs[trial.epoch], trial.number))
        return True

    while True:
        while free and begin():
            pass
        if not running:
            return Course(now, sum(trial.epoch for trial in controller.trials))
        now, number = heapq.heappop(running)
        trial = controller.trials.by_number[number]
        decision = controller.report(number, _make_report(controller, trial, finals[number], rng))
        if decision is Decision.CONTINUE and trial.state == "running":
            heapq.heappush(running, (now + times[number][1][trial.epoch], number))
        else:
            free.append(now)


def without_stopping(space: Space) -> Space:
    """Return the space with a scheduler that trains every trial in full."""
    return replace(space, search=space.search.model_copy(update={"scheduler": NoScheduler()}))


def _make_report(controller: Controller, trial: Trial, final: float, rng: np.random.Generator) -> Report:
    share = (trial.epoch + 1) / trial.epochs
    score = controller.trials.sign * (final + 10 * share + EARLY_NOISE * (1 - share) * float(rng.normal()))
    return Report(trial.epoch + 1, {}, score, 0.0, trial.epoch + 1, [], 0.0)
