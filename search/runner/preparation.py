"""What is done once on every machine before the first trial: check the data, fetch weights, find what `auto` means."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.runner.cluster import Node
from search.runner.worker import bootstrap, project_root
from spaces.parameters.domains import Choice, Domain
from spaces.parameters.draws import RandomTrial, count, draw, draw_every
from spaces.space import Space
from training.contract.specs import Preprocessing
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.techniques.model.unfreeze import Unfreeze

if TYPE_CHECKING:
    from training.data.files.images import ImageData

COMBINATIONS = 200  # are all prepared; of more, so many random ones are, and the others left to the trials
INPUTS = ("data", "preprocessing", "backbone", "augmentation")


def inputs_of(space: Space) -> list[Recipe]:
    """Recipes with each distinct data, preprocessing and backbone that a space asks for: every image size, for one."""
    part = {name: value for name, value in space.recipe.items() if name in INPUTS}
    if "augmentation" in part:
        part["augmentation"] = _forget_strengths(part["augmentation"])
    found = {input_key(recipe): recipe for recipe in space.baselines()[:1]}
    for values in _list_draws(part):
        with suppress(UserError):  # a draw that conflicts is none
            recipe = read_recipe(values)
            found.setdefault(input_key(recipe), recipe)
    if 1 not in space.values_of("batch_size"):
        return list(found.values())
    # Whether one image is enough depends on the backbone and on what trains of it: only these go into the question.
    is_last = space.values_of("unfreeze.level") == {"last"} and space.values_of("unfreeze.milestones") == {()}
    one: dict[str, Any] = {"batch_size": 1, "unfreeze": Unfreeze(level="last" if is_last else "full")}
    return [Recipe(**{name: getattr(recipe, name) for name in INPUTS}, **one) for recipe in found.values()]


def _list_draws(tree: dict[str, Any]) -> list[Any]:
    if count(tree) > COMBINATIONS:
        return [draw(tree, RandomTrial(seed)) for seed in range(COMBINATIONS)]
    return [values for _, values in draw_every(tree)]


def _forget_strengths(augmentation: Any) -> Any:
    """How strongly images are changed says nothing about what a machine needs for it."""
    if isinstance(augmentation, Choice):
        return replace(augmentation, options=tuple(map(_forget_strengths, augmentation.options)))
    kept = ("policy", "backend", "path", "pipeline")
    return {name: value for name, value in augmentation.items() if name in kept or not isinstance(value, Domain)}


def input_key(recipe: Recipe) -> str:
    """The same for recipes that feed the same images to the same backbone, however strongly augmented."""
    return recipe.model_dump_json(
        include={**dict.fromkeys(INPUTS, True), "augmentation": {"policy", "backend", "path", "pipeline"}}
    )


def check_recipe(recipe: Recipe, device: str) -> tuple[ImageData, Recipe]:
    """The data that a recipe names, every image tried, and the recipe with what `auto` means there.

    Raises:
        UserError: its data or its backbone cannot be had, or do not fit each other.
    """
    from training.data.files.check import check_images
    from training.data.sources.load_data import load_data
    from training.model.build import build_model, refuse_single_images
    from training.resolve import resolve_recipe

    data = load_data(recipe.data)
    check_images(data)
    meant = resolve_recipe(recipe, data, device)
    side: Any = meant.preprocessing.image_size
    refuse_single_images(recipe, build_model(recipe.backbone, len(data.classes), side), side)
    return data, meant


def prepare_machine(storage: str, inputs: list[dict[str, Any]], gpus: float) -> dict[str, Any]:
    """Run on a machine of the cluster: what is wrong there, or what it can do. Never raises for a user's mistake."""
    import torch

    from training.data.inspection.remarks import list_remarks, summarise_remarks

    try:
        if not os.access(storage, os.W_OK):
            raise UserError(f"--storage={storage}: not a folder that can be written to on {os.uname().nodename}.")
        if gpus and not torch.cuda.is_available():
            raise UserError(
                f"{os.uname().nodename} has a GPU that torch {torch.__version__} cannot use (driver too old, or another "
                "build of torch). Mend that, or run on the CPU with --gpus-per-trial=0."
            )
        resolved: dict[str, Any] = {}
        remark: str | None = None
        for recipe in map(read_recipe, inputs):
            data, meant = check_recipe(recipe, "cuda" if gpus else "cpu")
            if remark is None:  # all recipes of a space have the same data
                remark = summarise_remarks(list_remarks(data), recipe.data)
            resolved[input_key(recipe)] = meant.preprocessing.model_dump(), meant.augmentation.backend
    except UserError as error:
        return {"problem": str(error)}
    return {
        "problem": None,
        "remark": remark,
        "resolved": resolved,
        "bf16": bool(gpus) and torch.cuda.is_bf16_supported(including_emulation=False),
    }


def prepare_cluster(
    inputs: list[dict[str, Any]], storage: Path, nodes: list[Node], gpus: float
) -> list[dict[str, Any]]:
    """Prepare every machine of a cluster at once, each by a task that runs there; one that dies meanwhile is left out.

    Raises:
        UserError: none is left.
    """
    import ray
    from ray.exceptions import NodeDiedError, TaskUnschedulableError, WorkerCrashedError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    prepare = ray.remote(max_retries=2)(bootstrap(project_root(), "search.runner.preparation", "prepare_machine"))
    answers = []
    for node in nodes:
        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        own = min(gpus, node.gpus)
        # No CPU of its own: Ray may still count one as taken by a driver that was killed, and never give it back.
        task = prepare.options(num_cpus=0, num_gpus=own, scheduling_strategy=here)
        answers.append(task.remote(str(storage), inputs, own))
    facts, reason = [], ""
    for answer in answers:
        try:
            facts.append(ray.get(answer))
        except (NodeDiedError, TaskUnschedulableError, WorkerCrashedError) as error:
            reason = str(error).split("\n")[0].rstrip(".")
    if not facts:
        raise UserError(f"No machine of the cluster lived long enough to be prepared ({reason}). Try again.")
    return facts


def make_resolver(facts: list[dict[str, Any]]) -> Callable[[Recipe], Recipe]:
    """What the machines found `auto` to mean, as a change of recipes; unforeseen ones are left to the trial."""
    known = {
        key: (Preprocessing(**values), backend) for fact in facts for key, (values, backend) in fact["resolved"].items()
    }

    def resolve(recipe: Recipe) -> Recipe:
        if (key := input_key(recipe)) not in known:
            return recipe
        preprocessing, backend = known[key]
        augmentation = recipe.augmentation.model_copy(update={"backend": backend})
        return recipe.model_copy(update={"preprocessing": preprocessing, "augmentation": augmentation})

    return resolve
