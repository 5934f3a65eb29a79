"""Forecast a sweep: for `sweep plan`, and for the ledger of a sweep that starts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.events import AnyEvent
from ledger.settings import Settings
from search.display.phases import Phases
from search.planning.measured_space import MeasuredSpace, file_of, measure_space, recall, save
from search.planning.packing import find_room, pack_trials
from search.planning.sweep_plan import MOST_TRIALS, SweepPlan, plan_sweep
from search.runner.machines.cluster import probe_cluster, this_machine
from search.runner.start.prepare import PreparedSweep, check_data, check_early, check_packing, make_plan
from spaces.space import Space
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console


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
            phases.begin("checking this machine")
            check_early(space, storage, settings.named_cpus, settings.named_gpus, phases.begin)
            _check_price(price, settings.named_gpus != 0 and this_machine().gpus > 0)
            phases.begin("checking the data")
            check_data(space)
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
