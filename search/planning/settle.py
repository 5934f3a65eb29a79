"""Measure a space, or recall what was measured, and give a sweep its forecast."""

from __future__ import annotations

from pathlib import Path

from search.display.phases import Phases
from search.planning.measured_space import MeasuredSpace, file_of, measure_space, recall, save
from search.planning.packing import Room, choose_demand, describe_fit, fit_trials
from search.planning.sweep_plan import MOST_TRIALS, plan_sweep
from search.runner.start.early_checks import check_packing
from search.runner.start.plan import Plan
from search.storage.events import AnyEvent
from search.storage.settings import Settings
from training.errors import UserError


def settle(plan: Plan, settings: Settings, storage: Path, phases: Phases) -> list[AnyEvent]:
    """Pack the trials if the user wants so, and return the forecast of a sweep as an event, if its space was measured.

    Raises:
        UserError: trials cannot be packed here.
    """
    measured = recall(plan, file_of(storage, plan))
    if settings.packs:
        check_packing(settings, plan.capacity.demand.gpus > 0)
        measured = measured or measure(plan, settings, storage, phases)
        pack_trials(plan, measured)
    if measured is None or plan.space.search.trials > MOST_TRIALS:
        return []
    return [plan_sweep(plan, measured, find_room(plan)).to_event()]


def pack_trials(plan: Plan, measured: MeasuredSpace) -> None:
    """Change the demand of the trials so that as many as fit run at the same time, and say how many and why.

    Raises:
        UserError: there is no machine yet.
    """
    room, demand = find_room(plan), plan.capacity.demand
    if room is None:
        raise UserError(
            "There is no machine whose memory could be divided. Start one, or give a number in place of auto."
        )
    fit = fit_trials(room, measured.needs)
    plan.capacity.pack(choose_demand(demand, room, measured.needs, fit), describe_fit(room, measured.needs, fit))


def measure(plan: Plan, settings: Settings, storage: Path, phases: Phases) -> MeasuredSpace:
    """Measure a space, and keep that in the storage folder.

    Raises:
        UserError: no recipe can be trained here.
    """
    measured = measure_space(plan, settings.named_cpus is None, phases.begin)
    save(measured, file_of(storage, plan))
    return measured


def find_room(plan: Plan) -> Room | None:
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
