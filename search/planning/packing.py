"""How many trials fit on a GPU or on a machine, by the memory that they need and by the CPUs; and the plan of a sweep."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.events import AnyEvent
from ledger.formatting import plural
from ledger.settings import Settings
from search.display.phases import Phases
from search.planning.measured_space import MeasuredSpace, file_of, measure_space, recall, save
from search.planning.sweep_plan import MOST_TRIALS, SweepPlan, plan_sweep
from search.runner.machines.capacity import MARGIN, Demand
from search.runner.machines.cluster import probe_cluster, this_machine
from search.runner.start.prepare import PreparedSweep, check_data, check_early, check_packing, make_plan
from spaces.space import Space
from training.errors import UserError
from training.process.resources import CONTEXT_MB

if TYPE_CHECKING:
    from rich.console import Console

SHARES = 10_000  # Ray counts parts of a GPU in steps of this size


@dataclass(frozen=True)
class Room:
    """One GPU with its part of the machine, or a machine without GPUs; memory in MB (2**20 bytes)."""

    cpus: float
    ram_mb: float
    gpu_mb: float = 0.0  # 0: no GPU


@dataclass(frozen=True)
class Needs:
    """The peaks of one trial in MB (2**20 bytes): of its processes, and on a GPU of what torch reserves there."""

    ram_mb: float
    gpu_mb: float = 0.0


@dataclass(frozen=True)
class Packing:
    """How many trials fit, and what limits their number: `CPUs`, `memory` or `GPU memory`. 0: not even one fits."""

    count: int
    limit: str
    counts: dict[str, int]


def fit_trials(room: Room, needs: Needs) -> Packing:
    """Return how many trials fit, each with at least one CPU and 10 % more memory than was measured."""
    counts = {"CPUs": int(room.cpus)}
    if math.isfinite(room.ram_mb):  # else nobody counts it
        counts["memory"] = int(room.ram_mb / (MARGIN * max(1.0, needs.ram_mb)))
    if room.gpu_mb:
        counts["GPU memory"] = int(room.gpu_mb / (MARGIN * needs.gpu_mb + CONTEXT_MB))
    limit = min(counts, key=lambda name: counts[name])
    return Packing(counts[limit], limit, counts)


def choose_demand(demand: Demand, room: Room, needs: Needs, fit: Packing) -> Demand:
    """Return the demand of each packed trial. A trial that needs more than there is gets everything.

    On a GPU a trial gets its part, and whole CPUs; the memory of the machine counts for every trial.
    """
    count = max(1, fit.count)
    cpus = float(max(1, int(room.cpus / count)))
    memory = min(MARGIN * needs.ram_mb, room.ram_mb)
    gpus = math.floor(SHARES / count) / SHARES if room.gpu_mb else 0.0
    return replace(demand, cpus=cpus, gpus=gpus, memory_mb=memory)


def describe_fit(room: Room, needs: Needs, fit: Packing) -> str:
    """Return a sentence about the number of trials and its reason."""
    where, has, needed = ("GPU", room.gpu_mb, needs.gpu_mb) if room.gpu_mb else ("machine", room.ram_mb, needs.ram_mb)
    memory = f"a trial needs up to {needed:,.0f} of its {has:,.0f} MB"
    if not fit.count:
        return f"Packing: 1 trial on each {where}, although {memory}; it may run out of memory."
    others = ", ".join(f"{name} for {count}" for name, count in fit.counts.items() if name != fit.limit)
    return f"Packing: {plural(fit.count, 'trial')} on each {where}, limited by its {fit.limit} (enough {others}); {memory}."


def find_room(plan: PreparedSweep) -> Room | None:
    """Return the smallest GPU with its part of the machine, or the smallest machine without GPUs; None without machines."""
    if not plan.nodes:
        return None
    parts = [node.gpus if plan.capacity.demand.gpus else 1 for node in plan.nodes]
    nodes = list(zip(plan.nodes, parts, strict=True))
    return Room(
        min(node.cpus / part for node, part in nodes),
        min(node.memory_mb / part for node, part in nodes),
        plan.gpu_mb if plan.capacity.demand.gpus else 0.0,
    )


def pack_trials(plan: PreparedSweep, needs: Needs) -> None:
    """Change the demand of the trials so that as many as fit run at the same time, and say how many and why."""
    room, demand = find_room(plan), plan.capacity.demand
    if room is None:
        raise UserError(
            "There is no machine whose memory could be divided. Start one, or give a number in place of auto."
        )
    fit = fit_trials(room, needs)
    plan.capacity.pack(choose_demand(demand, room, needs, fit), describe_fit(room, needs, fit))


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
            f"search.trials={space.search.trials}: a plan is for at most {MOST_TRIALS} trials. PreparedSweep with fewer trials."
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
