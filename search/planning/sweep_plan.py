"""What a sweep will need: time with and without early stopping, memory of a trial, trials at the same time, money."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ledger.events import AnyEvent, SweepPlanned
from ledger.settings import Settings
from search.display.phases import Phases
from search.planning.cost_model import CostModel, CostTarget, epoch_seconds, list_levels
from search.planning.measured_space import MeasuredSpace, file_of, measure_space, recall, save
from search.planning.packing import Packing, Room, find_room, fit_trials, pack_trials
from search.planning.simulation import Course, simulate, without_stopping
from search.runner.machines.cluster import probe_cluster, this_machine
from search.runner.start.prepare import PreparedSweep, check_early, check_packing, make_plan
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console

SEEDS = 5  # simulated sweeps; one if there are more trials than MANY
MANY = 200
MOST_TRIALS = 2000  # the simulation of more takes minutes
TRIAL_SECONDS = 0.05  # between two trials of a worker: Ray, the proposal of a recipe, the ledger
REPORT_SECONDS = 0.02  # until a worker has the decision about an epoch


@dataclass(frozen=True)
class RecipeRow:
    """One measured recipe. `differs` has its differences from the first one; without a cost, `problem` says why."""

    kind: str
    differs: str
    problem: str
    images_per_second: float | None
    epoch_seconds: float | None
    setup_seconds: float | None
    train_memory_mb: float | None
    evaluation_memory_mb: float | None
    ram_mb: float | None
    recipe: dict[str, object]


@dataclass(frozen=True)
class SweepPlan:
    """The needs of a sweep. Times are wall clock; memory is the largest of all recipes that the sweep may draw.

    `seconds_low` and `seconds_high` are the extremes of some simulated sweeps, and `seconds_full` is without early
    stopping. `fits` is the number of trials that fit on one GPU, or without GPUs on one machine, and `fits_by` what limits
    it. `time_factor` and `memory_factor` are the mean errors on `checked` recipes that were measured for this purpose: a
    prediction is too high or too low by this factor. The price is null without `--price-per-gpu-hour`.
    """

    name: str
    trials: int
    slots: int
    device: str
    cpus_per_trial: float
    gpus_per_trial: float
    seconds: float
    seconds_low: float
    seconds_high: float
    seconds_full: float
    epochs: float
    epochs_full: float
    images_per_second_low: float
    images_per_second_high: float
    train_memory_mb: float
    evaluation_memory_mb: float
    ram_mb: float
    fits: int
    fits_by: str
    price: float | None
    price_full: float | None
    checked: int
    time_factor: float | None
    memory_factor: float | None
    not_measured: list[str]
    removed: list[str]
    recipes: list[RecipeRow]

    def to_event(self) -> SweepPlanned:
        """Return what the ledger keeps of it."""
        return SweepPlanned(
            trials=self.trials,
            slots=self.slots,
            seconds=self.seconds,
            seconds_low=self.seconds_low,
            seconds_high=self.seconds_high,
            seconds_full=self.seconds_full,
            memory_mb=max(self.train_memory_mb, self.evaluation_memory_mb),
        )


def plan_sweep(
    plan: PreparedSweep, measured: MeasuredSpace, room: Room | None, price: float | None = None
) -> SweepPlan:
    """Forecast a sweep from what was measured; without a `room` there is no machine yet. `price` is that of a GPU hour."""
    demand, space, costs = plan.capacity.demand, plan.space, measured.costs
    courses, full = _simulate(plan, measured)
    seconds = [course.seconds for course in courses]
    fit = Packing(0, "", {}) if room is None else fit_trials(room, measured.needs)
    per_second = (price or 0.0) / 3600 * demand.gpus * plan.capacity.slots
    mean, mean_full, error = fmean(seconds), fmean(course.seconds for course in full), measured.error
    return SweepPlan(
        name=space.name,
        trials=space.search.trials,
        slots=plan.capacity.slots,
        device="cuda" if demand.gpus else "cpu",
        cpus_per_trial=demand.cpus,
        gpus_per_trial=demand.gpus,
        seconds=mean,
        seconds_low=min(seconds),
        seconds_high=max(seconds),
        seconds_full=mean_full,
        epochs=fmean(course.epochs for course in courses),
        epochs_full=fmean(course.epochs for course in full),
        images_per_second_low=min(cost.images_per_second for cost in costs),
        images_per_second_high=max(cost.images_per_second for cost in costs),
        train_memory_mb=max(cost.train_memory_mb for cost in costs),
        evaluation_memory_mb=max(cost.evaluation_memory_mb for cost in costs),
        ram_mb=measured.needs.ram_mb,
        fits=fit.count,
        fits_by=fit.limit,
        price=None if price is None else per_second * mean,
        price_full=None if price is None else per_second * mean_full,
        checked=error.recipes if error else 0,
        time_factor=error.time if error else None,
        memory_factor=error.memory if error else None,
        not_measured=measured.left_out,
        removed=list(plan.notes),
        recipes=list_rows(measured),
    )


def _simulate(plan: PreparedSweep, measured: MeasuredSpace) -> tuple[list[Course], list[Course]]:
    """Return courses of the sweep with early stopping, and of the same trials without."""
    slots, start = max(1, plan.capacity.slots), measured.measurements[0].start_seconds

    def run(space: Space, seed: int) -> Course:
        return simulate(space, plan.resolve, partial(_time_trial, measured.model), slots, start, seed)

    seeds = range(SEEDS if plan.space.search.trials <= MANY else 1)
    full = without_stopping(plan.space)
    return [run(plan.space, seed) for seed in seeds], [run(full, seed) for seed in seeds]


def _time_trial(model: CostModel, recipe: Recipe) -> tuple[float, list[float]]:
    """Return the seconds of a trial's start and of each epoch."""
    levels = [(CostTarget(recipe, level).features, count) for level, count in list_levels(recipe)]
    first = model.predict(levels[0][0])
    setup = first.setup_seconds + TRIAL_SECONDS
    if isinstance(recipe.optimizer.lr, str):
        from training.loop.auto_values.range_test import MOST_STEPS  # it imports Lightning, which takes seconds

        setup += MOST_STEPS * recipe.accumulation.batches * first.batch_size / first.images_per_second
    epochs: list[float] = []
    for cost in (model.predict(features) for features, count in levels for _ in range(count)):
        saved = cost.train_seconds * (1 - _area(recipe, len(epochs)))
        epochs.append(epoch_seconds(cost) - saved + REPORT_SECONDS)
    return setup, epochs


def _area(recipe: Recipe, epoch: int) -> float:
    """Return the area of the training images in an epoch as a share of the full area."""
    side = recipe.preprocessing.image_size
    if not isinstance(side, int) or recipe.progressive_resizing.start == 1:
        return 1.0
    return (recipe.progressive_resizing.side_in(epoch, recipe.epochs, side) / side) ** 2


_OF_COST = ("images_per_second", "setup_seconds", "train_memory_mb", "evaluation_memory_mb", "ram_mb")


def list_rows(measured: MeasuredSpace) -> list[RecipeRow]:
    """Return the measured recipes as rows."""
    base = measured.measurements[0].target
    return [
        RecipeRow(
            kind=one.target.kind,
            differs=one.target.differs_from(base),
            problem=one.problem,
            epoch_seconds=epoch_seconds(one.cost) if one.cost else None,
            recipe=one.target.recipe.flat(),
            **{name: getattr(one.cost, name, None) for name in _OF_COST},
        )
        for one in measured.measurements
    ]


class _NoStore:
    """A plan logs nothing."""

    def start(self, patient: bool = False) -> None: ...
    def wait_ready(self) -> None: ...


def make_sweep_plan(
    space: Space, settings: Settings, storage: Path, price: float | None, console: Console
) -> SweepPlan:
    """Measure some recipes of a space, keep that in the storage folder, and forecast the sweep."""
    if space.search.trials > MOST_TRIALS:
        raise UserError(
            f"search.trials={space.search.trials}: a plan is for at most {MOST_TRIALS} trials. Plan with fewer trials."
        )
    probe_cluster(settings.address)
    with Phases(console) as phases:
        if settings.address is None:
            _check_price(price, settings.named_gpus != 0 and this_machine().gpus > 0)
            check_early(space, storage, settings, phases.begin)
        plan = make_plan(space, settings, storage, _NoStore(), phases, console)
        _check_price(price, plan.capacity.demand.gpus > 0)
        if not plan.capacity.slots or math.isinf(plan.capacity.slots):
            raise UserError("There is no machine to measure on. Start one, or leave --address out.")
        measured = measure(plan, settings, storage, phases)
        phases.begin("simulating the sweep")
        return plan_sweep(plan, measured, find_room(plan), price)


def _check_price(price: float | None, has_gpus: bool) -> None:
    if price is not None and not has_gpus:
        raise UserError(f"--price-per-gpu-hour={price:g}: the trials use no GPU here. Leave it out.")


def pack_and_forecast(plan: PreparedSweep, settings: Settings, storage: Path, phases: Phases) -> list[AnyEvent]:
    """Pack the trials if the user wants so, and return the forecast of a sweep as an event, if its space was measured."""
    measured = recall(plan, file_of(storage, plan))
    if settings.packs:
        check_packing(settings, plan.capacity.demand.gpus > 0)
        measured = measured or measure(plan, settings, storage, phases)
        pack_trials(plan, measured.needs)
    if measured is None or plan.space.search.trials > MOST_TRIALS:
        return []
    return [plan_sweep(plan, measured, find_room(plan)).to_event()]


def measure(plan: PreparedSweep, settings: Settings, storage: Path, phases: Phases) -> MeasuredSpace:
    """Measure a space, and keep that in the storage folder."""
    measured = measure_space(plan, settings.named_cpus is None, phases)
    save(measured, file_of(storage, plan))
    return measured
