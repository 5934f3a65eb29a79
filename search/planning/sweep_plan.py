"""What a sweep will need: time with and without early stopping, memory of a trial, trials at the same time, money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from search.planning.cost_model import CostModel, epoch_seconds
from search.planning.features import list_levels
from search.planning.measured_space import MeasuredSpace, time_recipe
from search.planning.packing import Fit, Room, fit_trials
from search.planning.simulation import Course, simulate, without_stopping
from search.planning.targets import Target
from search.runner.start.plan import Plan
from search.storage.events import SweepPlanned
from spaces.space import Space
from training.recipe import Recipe

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
    recipe: dict[str, Any]


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


def plan_sweep(plan: Plan, measured: MeasuredSpace, room: Room | None, price: float | None = None) -> SweepPlan:
    """Forecast a sweep from what was measured.

    Args:
        plan: The prepared sweep.
        measured: What was measured of its space.
        room: One GPU with its part of the machine, or a machine without GPUs; None if there is no machine yet.
        price: The price of one GPU for one hour.
    """
    demand, space, model = plan.capacity.demand, plan.space, measured.model
    courses, full = _simulate(plan, measured)
    seconds = [course.seconds for course in courses]
    costs = [model.predict(target.features) for target in measured.candidates]
    fit = Fit(0, "", {}) if room is None else fit_trials(room, measured.needs)
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


def _simulate(plan: Plan, measured: MeasuredSpace) -> tuple[list[Course], list[Course]]:
    """Return courses of the sweep with early stopping, and of the same trials without."""
    model, slots, start = measured.model, max(1, plan.capacity.slots), measured.start_seconds

    def run(space: Space, seed: int) -> Course:
        return simulate(space, plan.resolve, partial(_time_trial, model, {}), slots, start, seed)

    seeds = range(SEEDS if plan.space.search.trials <= MANY else 1)
    full = without_stopping(plan.space)
    return [run(plan.space, seed) for seed in seeds], [run(full, seed) for seed in seeds]


def _time_trial(model: CostModel, found: dict[Any, float], recipe: Recipe) -> tuple[float, list[float]]:
    """Return the seconds of a trial's start and of each epoch. `found` has the range tests that were done already."""
    setup, epochs = time_recipe(model, recipe)
    if isinstance(recipe.optimizer.lr, str):  # trials with the same set-up share what they find
        from training.loop.auto_values.range_test import MOST_STEPS  # it imports Lightning, which takes seconds

        level, _ = next(list_levels(recipe))
        features = Target(recipe, level).features
        cost = model.predict(features)
        key = tuple(features.values())
        if key not in found:
            found[key] = MOST_STEPS * recipe.accumulation.batches * cost.batch_size / cost.images_per_second
            setup += found[key]
    return setup + TRIAL_SECONDS, [seconds + REPORT_SECONDS for seconds in epochs]


def list_rows(measured: MeasuredSpace) -> list[RecipeRow]:
    """Return the measured recipes as rows."""
    base = measured.measurements[0].target.features
    rows = []
    for one in measured.measurements:
        features, cost = one.target.features, one.cost
        differs = [f"{name}={_short(value)}" for name, value in features.items() if value != base.get(name)]
        rows.append(
            RecipeRow(
                one.target.kind,
                ", ".join(differs),
                one.problem,
                cost.images_per_second if cost else None,
                epoch_seconds(cost) if cost else None,
                cost.setup_seconds if cost else None,
                cost.train_memory_mb if cost else None,
                cost.evaluation_memory_mb if cost else None,
                cost.ram_mb if cost else None,
                one.target.recipe.flat(),
            )
        )
    return rows


def _short(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else value


def list_impossible(rows: Sequence[RecipeRow]) -> list[RecipeRow]:
    """Return the rows of recipes that cannot run here."""
    return [row for row in rows if row.problem]
