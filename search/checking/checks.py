"""`sweep run --check`: look at everything that a sweep needs, without training and without leaving a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from analysis.export.writable import check_folder
from analysis.formatting import format_seconds, plural
from search.checking.earlier_times import estimate_seconds
from search.request import Request
from search.runner.machines.capacity import Demand, plan_demand
from search.runner.machines.cluster import Node, fit_to_cluster, list_nodes, probe_cluster, start_ray, this_machine
from search.runner.start.early_checks import nearest_folder
from search.storage.events import Dataset
from search.storage.folder import new_folder
from spaces.space import Space
from training.errors import UserError

if TYPE_CHECKING:
    from search.runner.machines.preparation import MachineFacts


@dataclass(frozen=True)
class Check:
    """The result of one check; `remarks` are sentences about what a sweep would print too."""

    name: str
    is_ok: bool
    sentence: str
    remarks: tuple[str, ...] = ()


@dataclass
class Checker:
    """The checks of one sweep. What a check finds out is kept for the later ones."""

    request: Request
    space: Space | None = None  # without options that the machines do not support
    demand: Demand | None = None
    nodes: list[Node] = field(default_factory=list)
    facts: list[MachineFacts] = field(default_factory=list)  # of the machines of a cluster
    dataset: Dataset | None = None
    remarks: list[str] = field(default_factory=list)

    def run(self) -> Iterator[Check]:
        """Make all checks, also after one that fails."""
        if self.request.preset and self.request.notes:
            first, *more = self.request.notes
            yield Check("preset", True, first, tuple(more))
        parts: dict[str, Callable[[], str]] = {
            "storage": self._check_storage,
            "tracking": self._check_tracking,
            "machines": self._check_machines,
            "weights": self._check_weights,
            "data": self._check_data if self.request.settings.address is None else self._check_data_on_cluster,
            "time": self._estimate_time,
        }
        for name, part in parts.items():
            self.remarks = []
            try:
                is_ok, sentence = True, part()
            except UserError as error:
                is_ok, sentence = False, str(error)
            yield Check(name, is_ok, sentence.rstrip(".") + ".", tuple(self.remarks))

    def _check_storage(self) -> str:
        asked = self.request
        free = f"with {shutil.disk_usage(nearest_folder(asked.storage)).free / 2**30:,.1f} GiB free"
        if asked.or_resume and asked.name is not None and (asked.storage / asked.name).exists():
            check_folder("--storage", asked.storage / asked.name)
            return f"{asked.storage / asked.name} exists, so the sweep continues, {free}"
        folder = new_folder(asked.storage, asked.name, asked.space.name)
        return f"{folder.path} can be written, {free}"

    def _check_tracking(self) -> str:
        from search.tracking.store_check import describe_store

        return describe_store(self.request.settings.tracking_uri, self.request.settings.experiment)

    def _check_machines(self) -> str:
        settings = self.request.settings
        is_local = settings.address is None
        probe_cluster(settings.address)
        if not is_local:
            start_ray(settings.address)
        nodes = [this_machine()] if is_local else list_nodes()
        can_grow = not is_local and settings.max_concurrent is not None
        demand = plan_demand(nodes, settings.named_cpus, settings.named_gpus, settings.accelerator, can_grow)
        self.space, self.remarks = fit_to_cluster(
            self.request.space, can_bf16=True, has_gpus=demand.gpus > 0, devices=demand.devices
        )
        self.demand, self.nodes = demand, [node for node in nodes if demand.slots_on(node)]
        return (
            f"{_describe_nodes(nodes)}; {plural(self.slots, 'trial')} at the same time, {_describe_demand(demand)} each"
        )

    @property
    def slots(self) -> int:
        """The number of trials at the same time."""
        room = self.demand.count_slots(self.nodes) if self.demand else 0
        most = self.request.settings.max_concurrent
        return room if most is None else min(most, room) if self.request.settings.address is None else most

    def _check_weights(self) -> str:
        from search.runner.machines.preparation import inputs_of
        from training.model.weights import locate_weights

        backbones = dict.fromkeys(recipe.backbone for recipe in inputs_of(self.request.space))
        found = [f"{backbone.name}: {locate_weights(backbone)}" for backbone in backbones]
        return "; ".join(found)

    def _check_data(self) -> str:
        from training.data.files.check import check_images
        from training.data.inspection.remarks import list_remarks
        from training.data.sources.identity import identify
        from training.data.sources.load_data import load_data

        spec = self.request.space.baselines()[0].data
        data = load_data(spec)
        check_images(data)
        self.remarks = [remark.sentence for remark in list_remarks(data)]
        self.dataset = identify(data, spec)
        return _describe_data(self.dataset)

    def _check_data_on_cluster(self) -> str:
        """Prepare each machine as a sweep would: it reads the data, the weights and the storage folder.

        Raises:
            UserError: trials cannot run on one of them.
        """
        from analysis.export.writable import made_for_now
        from search.runner.machines.preparation import compare_versions, inputs_of, prepare_cluster

        if self.demand is None:
            raise UserError("The machines cannot read the data as long as the check of the machines fails")
        inputs = [recipe.model_dump() for recipe in inputs_of(self.request.space)]
        with made_for_now(self.request.storage):
            is_shared = not self.request.settings.copy_to
            facts = prepare_cluster(inputs, self.request.storage, self.nodes, self.demand.gpus, is_shared)
        if problems := [f"{fact.host}: {fact.problem}" for fact in facts if fact.problem]:
            raise UserError(" ".join(problems))
        self.facts = [fact for fact in facts if not fact.problem]
        self.dataset = next((fact.dataset for fact in facts if fact.dataset), None)
        self.remarks = [*compare_versions(facts), *{fact.remark for fact in facts if fact.remark}]
        about = f", {_describe_data(self.dataset)}" if self.dataset else ""
        return f"{plural(len(facts), 'machine')} can read it{about}"

    def _estimate_time(self) -> str:
        if self.dataset is None or self.space is None or self.demand is None or not self.slots:
            return "unknown, because the checks of the machines and of the data have to succeed first"
        from search.checking.kept_plan import recall_plan

        budget = self.request.settings.time_budget_seconds
        end = f"; the time budget ends it after {format_seconds(budget)}" if budget else ""
        plan = recall_plan(self.request, self.space, self.dataset, self.nodes, self.demand, self.facts)
        if plan is not None:
            early = f", {format_seconds(plan.seconds_full)} if no trial is stopped early"
            early = early if plan.epochs < plan.epochs_full else ""
            return f"about {format_seconds(plan.seconds)}{early}: `sweep plan` measured this space{end}"
        found = estimate_seconds(self.request.space, str(self.dataset["digest"]), self.request.storage, self.slots)
        if found is None:
            return (
                f"unknown, because no earlier sweep in {self.request.storage} has this data and this backbone; "
                f"`sweep plan` measures it{end}"
            )
        early = f", {format_seconds(found.full)} if no trial is stopped early" if found.share < 1 else ""
        return (
            f"about {format_seconds(found.seconds)}{early}: an epoch took {found.epoch_seconds:.3g} s in "
            f"{', '.join(found.sweeps)}{end}"
        )


def _describe_nodes(nodes: list[Node]) -> str:
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    where = nodes[0].host if len(nodes) == 1 else plural(len(nodes), "machine")
    return f"{where} with {plural(int(cpus), 'CPU')} and {plural(int(gpus), 'GPU')}"


def _describe_demand(demand: Demand) -> str:
    gpus = f" and {demand.gpus:g} GPU{'s' * (demand.gpus != 1)}" if demand.gpus else ""
    return f"{demand.cpus:g} CPU{'s' * (demand.cpus != 1)}{gpus}"


def _describe_data(dataset: Dataset) -> str:
    images = [f"{dataset[f'{part}_images']:,} {name}" for part, name in _PARTS.items()]
    return f"{dataset['name']} has {dataset['classes']} classes and {', '.join(images)} images"


_PARTS = {"train": "training", "val": "validation", "test": "test"}
