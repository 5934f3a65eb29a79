"""Prepare a sweep: check the data, start Ray, prepare the machines, replace `auto`, open MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.reading.store import import_client
from ledger.events import Dataset
from ledger.formatting import plural
from ledger.settings import Settings
from ledger.trust import DEBUG
from search.runner.display import Display
from search.runner.executor import Work, run_here, run_on_ray
from search.runner.machines.capacity import Capacity, Demand, describe_left_out, plan_demand
from search.runner.machines.cluster import Node, fit_to_cluster, list_nodes, this_machine
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
from search.runner.machines.sharing import SharedCluster
from spaces.space import Space
from training.errors import UserError
from training.process.writable import made_for_now
from training.recipe import Recipe

if TYPE_CHECKING:
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
    execute: Callable[[Work], None] = run_on_ray  # calls its `should_stop` and `leave`
    files: Mapping[str, str] = field(default_factory=dict)  # the images of the data set


class Preparation:
    """Starts Ray and fits the space to the machines, while the MLflow store opens."""

    def __init__(
        self,
        space: Space,
        settings: Settings,
        storage: Path,
        tracking: Tracking,
        display: Display,
        patient: bool = False,
    ) -> None:
        """`patient` is whether the sweep can start while the MLflow server does not answer."""
        self.space, self.settings, self.storage = space, settings, storage
        self.tracking, self.display, self.patient = tracking, display, patient
        self.is_local, self.is_server = settings.is_local, settings.tracking_uri.startswith("http")
        self.inputs = [recipe.model_dump() for recipe in inputs_of(space)]
        self.facts: list[MachineFacts] = []  # of machines that can train
        self.failed: dict[str, str] = {}  # why the others cannot, by the id of the node
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}

    def run(self) -> PreparedSweep:
        if self.is_server:  # this takes little time; a database is created while Ray starts
            self._open_store("checking the MLflow server")
        with self._timed("ray"):
            here = self._begin()
            if (address := self.settings.address) != DEBUG:
                self.display.phase("starting Ray" if self.is_local else f"joining Ray at {address}")
                start_ray(address)
        with self._timed("preparation"):
            demand, nodes = self._fit_machines(here)
        with self._timed("store"):
            self._open_store("opening the MLflow store")
        dataset = _compare_data(self.facts, self.notes)
        self.notes += {remark for fact in self.facts if (remark := fact.remark)}  # one line if the machines agree
        for note in self.notes:
            self.display.line(note)
        files = next((fact.files for fact in self.facts), {})
        execute = run_here if self.settings.address == DEBUG else run_on_ray
        resolve, capacity = make_resolver(self.facts), self._watch(demand, nodes)
        return PreparedSweep(self.space, capacity, resolve, self.seconds, dataset, execute, files)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - began

    def _open_store(self, phase: str) -> None:
        self.display.phase(phase)
        self.tracking.start(self.patient)
        self.tracking.wait_ready()

    def _begin(self) -> Future[MachineFacts] | None:
        """Prepare this machine in this process, which needs torch for the export anyway, while Ray starts.

        The machines of a cluster are prepared by its workers; then MLflow is imported meanwhile.
        """
        pool = ThreadPoolExecutor(1)
        here = pool.submit(self._prepare_here) if self.is_local else None
        if not here:
            pool.submit(import_client)
        pool.shutdown(wait=False)  # an interrupted start-up must not wait for a download
        return here

    def _prepare_here(self) -> MachineFacts:
        fact = prepare_machine(str(nearest_folder(self.storage)), self.inputs, 0)
        if not fact.problem:
            self.tracking.start(self.patient)  # not earlier, so that a refused sweep creates no database
        return fact

    def _fit_machines(self, here: Future[MachineFacts] | None) -> tuple[Demand, list[Node]]:
        """Fit the space to the machines. Returns what a trial demands, and the machines that can run one."""
        local, settings = self.is_local, self.settings
        self.display.phase("preparing this machine: weights, image sizes" if local else "listing the machines")
        if here:
            self.facts = [here.result()]
            if problem := self.facts[0].problem:
                raise UserError(problem)
        can_grow = not local and settings.max_concurrent is not None
        nodes = [this_machine()] if settings.address == DEBUG else list_nodes()
        demand = plan_demand(nodes, settings.cpus_per_trial, settings.gpus_per_trial, settings.accelerator, can_grow)
        nodes = [node for node in nodes if demand.slots_on(node)]
        self._fit_space(demand)
        if nodes and settings.address != DEBUG and (demand.gpus or not self.facts):
            nodes = self._prepare_nodes(nodes, demand)
        if self.facts:
            can = [fact.bf16 for fact in self.facts]
            self._fit_space(demand, all(can), any(can) and not all(can))
        return demand, nodes

    def _fit_space(self, demand: Demand, can_bf16: bool = True, some_can: bool = False) -> None:
        self.space, notes = fit_to_cluster(self.space, demand.gpus > 0, demand.devices, can_bf16, some_can)
        self.notes += notes

    def _prepare_nodes(self, nodes: list[Node], demand: Demand) -> list[Node]:
        if not self.is_local:
            self.display.phase(f"preparing {plural(len(nodes), 'machine')}: data, weights, image sizes")
        with made_for_now(self.storage):  # each machine must find it
            facts = prepare_cluster(self.inputs, self.storage, nodes, demand.gpus, self.settings.copy_to)
        self.failed = {node.id: fact.problem for node, fact in zip(nodes, facts, strict=True) if fact.problem}
        self.notes += [describe_left_out(fact.host, fact.problem) for fact in facts if fact.problem]
        self.facts = [fact for fact in facts if not fact.problem]
        self.notes += compare_versions(self.facts)
        return [node for node in nodes if node.id not in self.failed]

    def _watch(self, demand: Demand, nodes: list[Node]) -> Capacity:
        inputs, storage, copy_to = self.inputs, self.storage, self.settings.copy_to
        return Capacity(
            demand,
            nodes,
            failed=self.failed,
            most=1 if self.settings.address == DEBUG else self.settings.max_concurrent,
            look=None if self.is_local else list_nodes,
            prepare=lambda node: follow_preparation(start_preparing(inputs, storage, node, demand.gpus, copy_to)),
            shared=None if self.is_local else SharedCluster(self.tracking.sweep_id, self.display.line),
            say=self.display.line,
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
