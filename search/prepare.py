"""What is done once on every machine before the first trial: check, fetch, measure, and warm the workers up."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from search.cluster import Demand, Node
from search.trial import bootstrap, project_root
from spaces.draws import RandomTrial
from spaces.space import Space
from training.data.specs import Preprocessing
from training.errors import UserError
from training.recipe import Recipe, read_recipe

DRAWS = 200  # an option that one draw in twenty takes is missed by all of them once in 28,000 sweeps
INPUTS = ("data", "preprocessing", "backbone")


def inputs_of(space: Space) -> list[Recipe]:
    """Recipes with each distinct data, preprocessing and backbone that a space asks for."""
    part = replace(space, recipe={name: value for name, value in space.recipe.items() if name in INPUTS})
    drawn = [read_recipe(part.suggest(RandomTrial(seed))) for seed in range(DRAWS)]  # type: ignore[arg-type]
    return list({input_key(recipe): recipe for recipe in [*space.baselines()[:1], *drawn]}.values())


def input_key(recipe: Recipe) -> str:
    """The same for recipes that feed the same images to the same backbone."""
    return recipe.model_dump_json(include=set(INPUTS))


def prepare_machine(storage: str, inputs: list[dict[str, Any]], gpus: float) -> dict[str, Any]:
    """Run on a machine of the cluster: what is wrong there, or what it can do. Never raises for a user's mistake."""
    import torch

    from training.data.check import check_images
    from training.data.load import load_data
    from training.models import build_model
    from training.train import resolve_recipe

    try:
        if not os.access(storage, os.W_OK):
            raise UserError(f"--storage={storage}: not a folder that can be written to on {os.uname().nodename}.")
        if gpus and not torch.cuda.is_available():
            raise UserError(
                f"{os.uname().nodename} has a GPU that torch {torch.__version__} cannot use (driver too old, or another "
                "build of torch). Mend that, or run on the CPU with --gpus-per-trial=0."
            )
        resolved = {}
        for recipe in map(read_recipe, inputs):
            data = load_data(recipe.data)
            check_images(data)
            preprocessing = resolve_recipe(recipe, data).preprocessing
            build_model(recipe.backbone, len(data.classes), preprocessing.image_size)  # type: ignore[arg-type]
            resolved[input_key(recipe)] = preprocessing.model_dump()
    except UserError as error:
        return {"problem": str(error)}
    return {
        "problem": None,
        "resolved": resolved,
        "bf16": bool(gpus) and torch.cuda.is_bf16_supported(including_emulation=False),
    }


def prepare_cluster(space: Space, storage: Path, nodes: list[Node], demand: Demand) -> list[dict[str, Any]]:
    """Prepare every machine at once, and import what trials need in as many workers as will run them.

    Ray hands an idle worker of the same job to the next actor, so the trials start warm.

    Raises:
        UserError: the first problem of any machine.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    inputs = [recipe.model_dump() for recipe in inputs_of(space)]
    root = project_root()
    prepare = ray.remote(max_retries=0)(bootstrap(root, "search.prepare", "prepare_machine"))
    warm = ray.remote(max_retries=0)(bootstrap(root, "search.prepare", "warm_up"))
    answers, warmed = [], []
    for node in nodes:
        here = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False)}
        gpus = min(demand.gpus, node.gpus)
        answers.append(prepare.options(num_cpus=1, num_gpus=gpus, **here).remote(str(storage), inputs, gpus))
        slots = int(min(node.cpus // demand.cpus, node.gpus // demand.gpus if demand.gpus else node.cpus))
        warmed += [warm.options(num_cpus=1, **here).remote() for _ in range(min(slots, int(node.cpus)) - 1)]
    found = ray.get(answers)
    for answer in found:
        if answer["problem"]:
            raise UserError(answer["problem"])
    ray.get(warmed)
    return found


def warm_up() -> None:
    """Import what a trial needs, which takes a cold process ten seconds."""
    import training.train  # noqa: F401


def make_resolver(facts: list[dict[str, Any]]) -> Callable[[Recipe], Recipe]:
    """What the machines found `auto` to mean, as a change of recipes; unforeseen ones are left to the trial."""
    known = {key: Preprocessing(**values) for fact in facts for key, values in fact["resolved"].items()}

    def resolve(recipe: Recipe) -> Recipe:
        return recipe.model_copy(update={"preprocessing": known.get(input_key(recipe), recipe.preprocessing)})

    return resolve
