"""`sweep plan`: prepare a sweep as `sweep run` does, without an MLflow store, measure its space, and forecast it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from search.display.phases import Phases
from search.planning.settle import find_room, measure
from search.planning.sweep_plan import MOST_TRIALS, SweepPlan, plan_sweep
from search.runner.machines.cluster import probe_cluster, this_machine
from search.runner.start.early_checks import check_early
from search.runner.start.plan import check_data, make_plan
from search.storage.settings import Settings
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
    """Measure some recipes of a space, keep that in the storage folder, and forecast the sweep.

    Raises:
        UserError: the space, the data or the machines are not usable, or no recipe can be trained here.
    """
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
