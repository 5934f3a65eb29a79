"""How many trials fit on a GPU or on a machine, by the memory that they need and by the CPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ledger.formatting import plural
from search.runner.machines.capacity import MARGIN, Demand
from search.runner.start.prepare import PreparedSweep
from training.errors import UserError
from training.process.resources import CONTEXT_MB

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
