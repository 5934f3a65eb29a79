"""Prepare a sweep: check the data, start Ray, prepare the machines, replace `auto`, open MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.reading.store import import_client
from ledger.events import Dataset
from ledger.formatting import plural
from ledger.settings import Settings
from search.display.phases import Phases
from search.runner.executor import Executor, run_on_ray
from search.runner.machines.capacity import Capacity, describe_failure, plan_demand
from search.runner.machines.cluster import fit_to_cluster, list_nodes, this_machine
from search.runner.machines.preparation import (
    MachineFacts,
    compare_versions,
    follow_preparation,
    inputs_of,
    load_checked,
    make_resolver,
    prepare_cluster,
    prepare_machine,
    start_preparing,
)
from search.runner.machines.ray_process import start_ray
from spaces.space import Space
from training.errors import UserError
from training.process.writable import made_for_now
from training.recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from search.tracking.writer import Tracking

LEVEL = "unfreeze.level"
NOISE = "with backbone.weights=none it trains only a head on random features, so its accuracy is hardly above chance"
WAY_OUT = f"Give the backbone weights, or use {LEVEL}=full."


def check_early(space: Space, storage: Path, settings: Settings, say: Callable[[str], None]) -> None:
    """Refuse a sweep that cannot run on this machine or on its data, and fetch the weights; each with a line about it."""
    say("checking this machine")
    demand = plan_demand([this_machine()], settings.cpus_per_trial, settings.gpus_per_trial)
    fit_to_cluster(space, demand.gpus > 0, demand.devices)
    folder = nearest_folder(storage)
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--storage={storage}: {folder} is not a folder that can be written to. Name another folder.")
    say("checking the data")
    load_checked(space.baselines()[0].data)  # it is never a search parameter
    backbones = dict.fromkeys(recipe.backbone for recipe in inputs_of(space))
    if any(backbone.weights not in ("none", "letters") for backbone in backbones):
        say("checking the weights of the backbone")  # importing torch takes seconds
        from training.model.weights import fetch_early

        for backbone in backbones:
            fetch_early(backbone, say)


def nearest_folder(path: Path) -> Path:
    """Return the path if it exists, else its nearest existing parent."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def leave_out_noise(space: Space) -> tuple[Space, list[str]]:
    """Remove the level that trains only a head on random features, unless the space has no other level.

    Returns:
        The space, and at most one sentence about it.
    """
    levels = space.values_of(LEVEL)
    if "none" not in space.values_of("backbone.weights") or "last" not in levels:
        return space, []
    if space.values_of("backbone.weights") != {"none"} or levels == {"last"}:
        return space, [f"{LEVEL}=last: {NOISE}. {WAY_OUT}"]
    return space.without(LEVEL, {"last"}), [
        f"Removed from the space: {LEVEL}=last ({NOISE}). To search it anyway, make it the only level: {LEVEL}=last."
    ]


def warn_of_noise(recipe: Recipe) -> list[str]:
    """Return at most one sentence: the same warning for one recipe."""
    is_noise = recipe.backbone.weights == "none" and recipe.unfreeze.deepest == "last"
    return [f"{LEVEL}=last: {NOISE}. {WAY_OUT}"] if is_noise else []


@dataclass(frozen=True)
class PreparedSweep:
    """The space without unsupported options, the room for trials, `auto`, the times, and who runs the trials."""

    space: Space
    capacity: Capacity
    resolve: Callable[[Recipe], Recipe]
    seconds: dict[str, float]
    dataset: Dataset | None
    execute: Executor = run_on_ray
    files: Mapping[str, str] = field(default_factory=dict)  # the images of the data set
    began: float = field(default_factory=time.monotonic)  # when the phases of the command began


def make_plan(
    space: Space,
    settings: Settings,
    storage: Path,
    tracking: Tracking,
    phases: Phases,
    console: Console,
    patient: bool = False,
) -> PreparedSweep:
    """Start Ray and fit the space to the machines, while the MLflow store opens."""
    is_local, is_server = settings.address is None, settings.tracking_uri.startswith("http")
    if is_server:
        phases.begin("checking the MLflow server")
        tracking.start(patient)
        tracking.wait_ready()  # this takes little time; a database is created while Ray starts
    inputs = [recipe.model_dump() for recipe in inputs_of(space)]
    clock = [time.perf_counter()]

    def prepare_here() -> MachineFacts:
        fact = prepare_machine(str(nearest_folder(storage)), inputs, 0)
        if not fact.problem and not is_server:
            tracking.start(patient)  # not earlier, so that a refused sweep creates no database
        return fact

    pool = ThreadPoolExecutor(1)
    # This machine is prepared in this process, which needs torch for the export anyway, while Ray starts. Machines of a
    # cluster are prepared by its workers; then MLflow is imported meanwhile.
    here = pool.submit(prepare_here) if is_local else None
    if not here:
        pool.submit(import_client)
    pool.shutdown(wait=False)  # an interrupted start-up must not wait for a download
    phases.begin("starting Ray" if is_local else f"joining Ray at {settings.address}")
    start_ray(settings.address)
    clock.append(time.perf_counter())
    phases.begin("preparing this machine: weights, image sizes" if is_local else "listing the machines of the cluster")
    facts = [here.result()] if here else []
    if facts and facts[0].problem:
        raise UserError(facts[0].problem)
    can_grow = not is_local and settings.max_concurrent is not None
    demand = plan_demand(list_nodes(), settings.cpus_per_trial, settings.gpus_per_trial, settings.accelerator, can_grow)
    nodes = [node for node in list_nodes() if demand.slots_on(node)]
    failed: dict[str, str] = {}
    space, notes = fit_to_cluster(space, demand.gpus > 0, demand.devices)
    if nodes and (demand.gpus or not facts):
        if not is_local:
            phases.begin(f"preparing {plural(len(nodes), 'machine')}: data, weights, image sizes")
        with made_for_now(storage):  # each machine must find it
            facts = prepare_cluster(inputs, storage, nodes, demand.gpus, settings.copy_to)
        failed = {node.id: fact.problem for node, fact in zip(nodes, facts, strict=True) if fact.problem}
        notes += [describe_failure(fact.host, fact.problem) for fact in facts if fact.problem]
        nodes = [node for node in nodes if node.id not in failed]
        facts = [fact for fact in facts if not fact.problem]
        notes += compare_versions(facts)
    if facts:
        can = [fact.bf16 for fact in facts]
        space, more = fit_to_cluster(space, demand.gpus > 0, demand.devices, all(can), any(can) and not all(can))
        notes += more
    clock.append(time.perf_counter())
    phases.begin("opening the MLflow store")
    if not here and not is_server:
        tracking.start(patient)
    tracking.wait_ready()
    clock.append(time.perf_counter())
    dataset = _compare_data(facts, notes)
    notes += {remark for fact in facts if (remark := fact.remark)}  # one line if the machines agree
    for note in notes:
        console.print(note)
    seconds = dict(zip(("ray", "preparation", "store"), (b - a for a, b in pairwise(clock)), strict=True))
    capacity = Capacity(
        demand,
        nodes,
        failed=failed,
        most=settings.max_concurrent,
        look=None if is_local else list_nodes,
        prepare=lambda node: follow_preparation(start_preparing(inputs, storage, node, demand.gpus, settings.copy_to)),
        say=lambda line: console.print(line, markup=False),
    )
    return PreparedSweep(
        space,
        capacity,
        make_resolver(facts),
        seconds,
        dataset,
        files=next((fact.files for fact in facts), {}),
        began=phases.began,
    )


def _compare_data(facts: list[MachineFacts], notes: list[str]) -> Dataset | None:
    """Return the description of the data, and note if machines have other numbers of classes or images."""
    datasets = [fact.dataset for fact in facts if fact.dataset]
    sizes = {frozenset(item for item in data.items() if isinstance(item[1], int)) for data in datasets}
    if len(sizes) > 1:
        notes.append(
            "The machines do not have the same data: the numbers of classes or images differ. Give all of them the same "
            "folder, or scores cannot be compared."
        )
    return datasets[0] if datasets else None
