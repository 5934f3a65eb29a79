"""The time of a sweep by an earlier `sweep plan` of the same space and data; nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search.planning.measured_space import file_of, recall
from search.planning.settle import find_room
from search.planning.sweep_plan import MOST_TRIALS, SweepPlan, plan_sweep
from search.request import Request
from search.runner.machines.capacity import Capacity, Demand
from search.runner.machines.cluster import Node, list_nodes
from search.runner.machines.preparation import MachineFacts, inputs_of, make_resolver, prepare_machine
from search.runner.start.early_checks import nearest_folder
from search.runner.start.plan import Plan
from search.storage.events import Dataset
from spaces.space import Space
from training.errors import UserError


def recall_plan(
    request: Request, space: Space, dataset: Dataset, nodes: list[Node], demand: Demand, facts: Sequence[MachineFacts]
) -> SweepPlan | None:
    """Return the forecast that a sweep would have in its ledger; None if its space was not measured.

    Args:
        request: The sweep.
        space: Its space without options that the machines do not support.
        dataset: The identity of its data.
        nodes: The machines that can run trials.
        demand: The CPUs and GPUs of a trial.
        facts: The preparation of the machines of a cluster; empty for this machine, which is then prepared here.

    Raises:
        UserError: trials cannot run here.
    """
    settings, storage = request.settings, request.storage
    if settings.packs or space.search.trials > MOST_TRIALS:  # Ray, which may not run yet, counts the memory to pack
        return None
    look = None if settings.address is None else list_nodes
    capacity = Capacity(demand, nodes, most=settings.max_concurrent, look=look)
    plan = Plan(space, capacity, lambda recipe: recipe, {}, dataset, nodes=tuple(nodes))
    if not (file := file_of(storage, plan)).exists():
        return None
    if not facts:
        inputs = [recipe.model_dump() for recipe in inputs_of(space)]
        fact = prepare_machine(str(nearest_folder(storage)), inputs, demand.gpus)
        if fact.problem:
            raise UserError(fact.problem)
        facts = [fact]
    gpu_mb = min(fact.gpu_mb for fact in facts)
    plan = replace(plan, resolve=make_resolver(list(facts)), gpu_mb=gpu_mb)
    measured = recall(plan, file)
    return plan_sweep(plan, measured, find_room(plan)) if measured else None
