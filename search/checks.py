"""`sweep run --check`: check everything that a sweep needs; nothing is trained, and no file is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from rich.text import Text

from analysis.reading.store import SERVERS, sqlite_file
from analysis.report.sentences import expect_reach
from ledger.events import Dataset
from ledger.folder import new_folder
from ledger.formatting import mask_secrets, plural
from ledger.settings import Settings
from search.arguments import check_store
from search.display.terminal import make_console
from search.request import SweepRequest
from search.runner.machines.capacity import Capacity, Demand, plan_demand
from search.runner.machines.cluster import Node, fit_to_cluster, list_nodes, probe_cluster, this_machine
from search.runner.machines.preparation import compare_versions, inputs_of, load_checked, prepare_cluster
from search.runner.machines.ray_process import start_ray
from search.runner.start.prepare import nearest_folder
from training.errors import UserError
from training.process.writable import check_folder, made_for_now

PARTS = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class Check:
    """The result of one check; a sweep would print its `remarks` too."""

    name: str
    is_ok: bool
    sentence: str
    remarks: tuple[str, ...] = ()


def print_checks(checks: Iterable[Check]) -> None:
    """Print each check as soon as it is made."""
    console = make_console()
    is_file = not console.is_interactive  # a terminal would break words
    failed = []
    for check in checks:
        word, style = ("ok", "green") if check.is_ok else ("failed", "bold red")
        console.print(Text.assemble((f"{word:<6}", style), f"  {check.name}: {check.sentence}"), soft_wrap=is_file)
        for remark in check.remarks:
            console.print(Text(f"        ! {remark}"), soft_wrap=is_file)
        failed += [] if check.is_ok else [check.name]
    if failed:
        raise UserError(f"{plural(len(failed), 'check')} failed ({', '.join(failed)}). The lines above say why.")
    console.print("A sweep can start. Nothing was trained, and no file was written.")


@dataclass
class Checker:
    """The checks of one sweep. Later checks use what earlier ones found."""

    request: SweepRequest
    demand: Demand | None = None
    nodes: list[Node] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.request.settings

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
            "data": self._check_data if self.settings.is_local else self._check_data_on_cluster,
        }
        for name, part in parts.items():
            self.remarks = []
            try:
                is_ok, sentence = True, part()
            except UserError as error:
                is_ok, sentence = False, str(error)
            yield Check(name, is_ok, sentence.rstrip(".") + ".", tuple(self.remarks))

    def _check_storage(self) -> str:
        storage, name = self.request.storage, self.request.options.name
        free = f"with {shutil.disk_usage(nearest_folder(storage)).free / 2**30:,.1f} GiB free"
        if self.request.options.or_resume and name is not None and (storage / name).exists():
            check_folder("--storage", storage / name)
            return f"{storage / name} exists, so the sweep continues, {free}"
        return f"{new_folder(storage, name, self.request.space.name).path} can be written, {free}"

    def _check_tracking(self) -> str:
        from analysis.reading.run_store import open_experiments

        uri, experiment = self.settings.tracking_uri, self.settings.experiment
        check_store(uri, experiment)
        shown, file = mask_secrets(uri), sqlite_file(uri)
        if file is not None and not file.exists():
            return f"{shown} will be created"
        with open_experiments(uri, experiment) as opened:
            state = "exists" if opened.experiments else "will be created"
        return f"{shown} {'answers' if uri.startswith(SERVERS) else 'can be read'}; the experiment {experiment} {state}"

    def _check_machines(self) -> str:
        settings, is_local = self.settings, self.settings.is_local
        probe_cluster(settings.address)
        if not is_local:
            start_ray(settings.address)
        nodes = [this_machine()] if is_local else list_nodes()
        can_grow = not is_local and settings.max_concurrent is not None
        demand = plan_demand(nodes, settings.cpus_per_trial, settings.gpus_per_trial, settings.accelerator, can_grow)
        _, self.remarks = fit_to_cluster(self.request.space, demand.gpus > 0, demand.devices)
        self.demand, self.nodes = demand, [node for node in nodes if demand.slots_on(node)]
        look = None if is_local else list_nodes
        slots = Capacity(demand, self.nodes, most=settings.max_concurrent, look=look).slots
        where = nodes[0].host if len(nodes) == 1 else plural(len(nodes), "machine")
        cpus, gpus = int(sum(node.cpus for node in nodes)), int(sum(node.gpus for node in nodes))
        gpu_words = f" and {demand.gpus:g} GPU{'s' * (demand.gpus != 1)}" if demand.gpus else ""
        return (
            f"{where} with {plural(cpus, 'CPU')} and {plural(gpus, 'GPU')}; {plural(slots, 'trial')} at the same time, "
            f"{demand.cpus:g} CPU{'s' * (demand.cpus != 1)}{gpu_words} each"
        )

    def _check_weights(self) -> str:
        from training.model.weights import locate_weights

        backbones = dict.fromkeys(recipe.backbone for recipe in inputs_of(self.request.space))
        return "; ".join(f"{backbone.name}: {locate_weights(backbone)}" for backbone in backbones)

    def _check_data(self) -> str:
        from training.data.identity import identify
        from training.data.inspection.remarks import list_remarks

        spec = self.request.space.baselines()[0].data
        data = load_checked(spec)
        self.remarks = [remark.sentence for remark in list_remarks(data)]
        return self._describe_data(identify(data, spec))

    def _check_data_on_cluster(self) -> str:
        if self.demand is None:
            raise UserError("This needs the machines, and their check failed")
        storage, inputs = self.request.storage, [recipe.model_dump() for recipe in inputs_of(self.request.space)]
        with made_for_now(storage):
            facts = prepare_cluster(inputs, storage, self.nodes, self.demand.gpus, self.settings.copy_to)
        if problems := [f"{fact.host}: {fact.problem}" for fact in facts if fact.problem]:
            raise UserError(" ".join(problems))
        dataset = next((fact.dataset for fact in facts if fact.dataset), None)
        self.remarks = [*compare_versions(facts), *{fact.remark for fact in facts if fact.remark}]
        about = f", {self._describe_data(dataset)}" if dataset else ""
        return f"{plural(len(facts), 'machine')} can read it{about}"

    def _describe_data(self, dataset: Dataset) -> str:
        images = ", ".join(f"{dataset[f'{part}_images']:,} {name}" for part, name in PARTS.items())
        held_out, trials = dataset["val_images"], self.request.space.search.trials
        assert isinstance(held_out, int)
        return (
            f"{dataset['name']} has {dataset['classes']} classes and {images} images; with these, {plural(trials, 'trial')} "
            f"hardly show effects of techniques below {100 * expect_reach(held_out, trials):.1f} points of accuracy"
        )
