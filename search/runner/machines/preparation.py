"""Prepare each machine once before the first trial: check the data, fetch weights, find the values for `auto`."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.events import Dataset
from search.copies.place import check_place
from search.runner.machines.cluster import Node
from search.runner.machines.ray_failures import describe_failure
from search.runner.worker import ROOMS, bootstrap, project_root
from spaces.parameters.domains import Choice, Domain
from spaces.parameters.draws import RandomTrial, count, draw, draw_every
from spaces.space import Space
from training.contract.part import Part
from training.contract.specs import Backbone, Data, Preprocessing
from training.errors import UserError
from training.process.resources import has_bfloat16
from training.recipe import Recipe, read_recipe
from training.techniques.model.unfreeze import Unfreeze

if TYPE_CHECKING:
    from ray import ObjectRef

    from training.data.files.images import ImageData

COMBINATIONS = 200  # up to this number all are prepared; else so many random ones, and trials prepare the others


@dataclass(frozen=True)
class MachineFacts:
    """The result of the preparation of one machine."""

    problem: str | None = None  # the reason if no trial can run there
    remark: str | None = None  # a sentence about anomalies of the data
    dataset: Dataset | None = None
    files: Mapping[str, str] = field(default_factory=dict)  # its images, see `training.data.identity.list_files`
    # Preprocessing and the backend of augmentation, by `input_key`.
    resolved: Mapping[str, tuple[Preprocessing, str]] = field(default_factory=dict)
    bf16: bool = True  # arithmetic of the GPUs, or else of the CPU
    host: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # of the software that decides the results


def inputs_of(space: Space) -> list[Recipe]:
    """Return recipes with each combination of data, preprocessing and backbone in a space, such as every image size."""
    needed = prepared_fields()
    part = {
        name: value if needed[name] is True else _forget_strengths(value, needed[name])
        for name, value in space.recipe.items()
        if name in needed
    }
    recipes = {input_key(recipe): recipe for recipe in space.baselines()[:1]}
    draws: Iterable[Any] = (draw(part, RandomTrial(seed)) for seed in range(COMBINATIONS))
    if count(part) <= COMBINATIONS:
        draws = (values for _, values in draw_every(partial(draw, part)))
    for values in draws:
        with suppress(UserError):  # a draw that conflicts is skipped
            recipe = read_recipe(values)
            recipes.setdefault(input_key(recipe), recipe)
    if 1 not in space.values_of("batch_size"):
        return list(recipes.values())
    # Whether batches of one image work depends only on the backbone and on the layers that train.
    is_last = space.values_of("unfreeze.level") == {"last"} and space.values_of("unfreeze.milestones") == {()}
    single_image: dict[str, Any] = {"batch_size": 1, "unfreeze": Unfreeze(level="last" if is_last else "full")}
    return [Recipe(**{name: getattr(recipe, name) for name in needed}, **single_image) for recipe in recipes.values()]


def prepared_fields() -> dict[str, Any]:
    """Return the parts of a recipe on which the preparation depends: True for all of a part, or the fields of it."""
    parts = {name: info.default for name, info in Recipe.model_fields.items() if isinstance(info.default, Part)}
    fields = {name: part.prepared_fields for name, part in parts.items() if part.prepared_fields}
    return {name: True if chosen == "all" else set(chosen) for name, chosen in fields.items()}


def _forget_strengths(part: Any, needed: set[str]) -> Any:
    if isinstance(part, Choice):
        return replace(part, options=tuple(_forget_strengths(option, needed) for option in part.options))
    return {name: value for name, value in part.items() if name in needed or not isinstance(value, Domain)}


def input_key(recipe: Recipe) -> str:
    """Return a key that is equal for recipes with the same input and backbone, whatever the strength of augmentation."""
    return recipe.model_dump_json(include=prepared_fields())


def check_recipe(recipe: Recipe, device: str) -> tuple[ImageData, Recipe]:
    """Load the data of a recipe, check every image, and replace every `auto` in the recipe."""
    from training.resolve import resolve_recipe

    data = load_checked(recipe.data)
    meant = resolve_recipe(recipe, data, device)
    _check_model(recipe, data, meant)
    return data, meant


def load_checked(spec: Data) -> ImageData:
    """Load data, and check every image."""
    from training.data.files.check import check_images
    from training.data.load_data import load_data

    data = load_data(spec)
    check_images(data)
    return data


def _check_model(recipe: Recipe, data: ImageData, meant: Recipe) -> None:
    from training.model.build import build_model, refuse_single_images
    from training.model.teacher import read_teacher

    if teacher := recipe.distillation.teacher:
        read_teacher(teacher, meant, data.classes)
    side: Any = meant.preprocessing.image_size
    refuse_single_images(recipe, build_model(recipe.backbone, len(data.classes), side), side)


def prepare_machine(storage: str, inputs: list[dict[str, object]], gpus: float, copy_to: str = "") -> MachineFacts:
    """Prepare the machine on which this runs. Returns its abilities, or the error of a user's mistake without raising.

    With a URI for copies the storage need not be shared, so it is created, and the machine must reach the URI.
    """
    import torch

    from training.data.identity import identify, list_files
    from training.data.inspection.remarks import list_remarks, summarise_remarks
    from training.resolve import resolve_recipe

    try:
        if copy_to:
            check_place(copy_to)
            with suppress(OSError):
                os.makedirs(storage, exist_ok=True)
        if not os.access(storage, os.W_OK):
            raise UserError(f"--storage={storage}: this is no folder that can be written to on {os.uname().nodename}.")
        if gpus and not torch.cuda.is_available():
            raise UserError(
                f"{os.uname().nodename} has a GPU that torch {torch.__version__} cannot use (driver too old, or another "
                "build of torch). Repair that, or run on the CPU with --gpus-per-trial=0."
            )
        resolved: dict[str, tuple[Preprocessing, str]] = {}
        built: set[tuple[Backbone, object]] = set()
        recipes = list(map(read_recipe, inputs))
        spec = recipes[0].data  # all recipes of a space have the same data
        data = load_checked(spec)
        remark = summarise_remarks(list_remarks(data), spec)
        dataset, files = identify(data, spec), list_files(data, spec)
        for recipe in recipes:
            meant = resolve_recipe(recipe, data, "cuda" if gpus else "cpu")
            if (model := (recipe.backbone, meant.preprocessing.image_size)) not in built:
                _check_model(recipe, data, meant)
                built.add(model)
            resolved[input_key(recipe)] = meant.preprocessing, meant.augmentation.backend
    except UserError as error:
        return MachineFacts(problem=str(error), host=os.uname().nodename)
    return MachineFacts(
        remark=remark,
        dataset=dataset,
        files=files,
        resolved=resolved,
        bf16=has_bfloat16("cuda" if gpus else "cpu"),
        host=os.uname().nodename,
        versions=list_versions(),
    )


def list_versions() -> dict[str, str]:
    """Return the versions of the software that decides the results. Ray itself refuses another version of Ray."""
    from importlib.metadata import version

    code = hashlib.blake2b(digest_size=4)
    for room in ROOMS:
        for path in sorted((Path(project_root()) / room).rglob("*.py")):
            code.update(path.read_bytes())
    libraries = {name: version(name) for name in ("torch", "torchvision", "timm", "lightning")}
    return {"Python": platform.python_version(), **libraries, "this program's code": code.hexdigest()}


def compare_versions(facts: list[MachineFacts]) -> list[str]:
    """Return a sentence for each machine whose software is not that of this one."""
    versions_here, notes = list_versions(), []
    for fact in facts:
        differs = [name for name, version in fact.versions.items() if version != versions_here[name]]
        if other := [f"{name} {fact.versions[name]} ({versions_here[name]} here)" for name in differs]:
            notes.append(f"{fact.host} has {', '.join(other)}: its results may differ.")
    return notes


def prepare_cluster(
    inputs: list[dict[str, object]], storage: Path, nodes: list[Node], gpus: float, copy_to: str = ""
) -> list[MachineFacts]:
    """Prepare all machines of a cluster at the same time, each by a task there. The results are in the order of the nodes."""
    answers = [start_preparing(inputs, storage, node, gpus, copy_to) for node in nodes]
    facts = [_await_facts(node.host, answer) for node, answer in zip(nodes, answers, strict=True)]
    if all(fact.problem for fact in facts):
        first = facts[0]
        agree = len({fact.problem for fact in facts}) == 1
        raise UserError(str(first.problem) if agree else f"No machine can run a trial. {first.host}: {first.problem}")
    return facts


def start_preparing(
    inputs: list[dict[str, object]], storage: Path, node: Node, gpus: float, copy_to: str = ""
) -> ObjectRef[MachineFacts]:
    """Start a task that prepares one machine of a cluster."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    prepare = ray.remote(max_retries=2)(bootstrap("search.runner.machines.preparation", "prepare_machine"))
    here = NodeAffinitySchedulingStrategy(node.id, soft=False)
    usable_gpus = min(gpus, node.gpus)
    # The task requests no CPU: Ray may keep one reserved for a driver that was killed, and never release it.
    task = prepare.options(num_cpus=0, num_gpus=usable_gpus, scheduling_strategy=here)
    answer: ObjectRef[MachineFacts] = task.remote(str(storage), inputs, usable_gpus, copy_to)
    return answer


def follow_preparation(answer: ObjectRef[MachineFacts]) -> Callable[[], str | None]:
    """Return a function for the result: None while the task runs, "" if trials can run on the machine, else the problem."""
    import ray

    def result() -> str | None:
        return (_await_facts("", answer).problem or "") if ray.wait([answer], timeout=0)[0] else None

    return result


def _await_facts(host: str, answer: ObjectRef[MachineFacts]) -> MachineFacts:
    import ray

    try:
        return ray.get(answer)
    except ray.exceptions.RayError as error:
        return MachineFacts(problem=f"The task that prepares the machine died ({describe_failure(error)}).", host=host)


def make_resolver(facts: list[MachineFacts]) -> Callable[[Recipe], Recipe]:
    """Return a function that replaces `auto` by the values that the machines found.

    Where machines found different values, as with and without a GPU, each trial resolves its own recipe.
    """

    def resolve(recipe: Recipe) -> Recipe:
        key = input_key(recipe)
        answers = [fact.resolved[key] for fact in facts if key in fact.resolved]
        if not answers or any(answer != answers[0] for answer in answers):
            return recipe
        preprocessing, backend = answers[0]
        augmentation = recipe.augmentation.model_copy(update={"backend": backend})
        return recipe.model_copy(update={"preprocessing": preprocessing, "augmentation": augmentation})

    return resolve
