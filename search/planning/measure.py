"""Measure recipes in Ray's workers, as many at a time as trials will run, so that they share the machine as trials do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from analysis.formatting import plural
from search.planning.targets import Target
from search.runner.machines.capacity import Demand
from search.runner.worker import bootstrap, project_root, share_resources
from training.errors import UserError
from training.recipe import read_recipe

if TYPE_CHECKING:
    from training.cost import Cost


@dataclass(frozen=True)
class Measurement:
    """The cost of a target, or the reason why it cannot run."""

    target: Target
    cost: Cost | None = None
    problem: str = ""
    start_seconds: float = 0.0  # from the request until the worker could begin, with its imports and its queue


def measure_targets(
    targets: Sequence[Target], demand: Demand, uses_share: bool, say: Callable[[str], None]
) -> list[Measurement]:
    """Measure each target. One that lost its worker is measured again, alone, before it counts as impossible."""
    import ray
    from ray.exceptions import RayError

    def start(target: Target) -> Any:
        return task.remote(target.recipe.model_dump(), target.level, demand.cpus, demand.gpus, uses_share, time.time())

    def finish(target: Target, answer: Any) -> Measurement:
        try:
            return read_answer(target, ray.get(answer))
        except RayError as error:
            return Measurement(target, problem=_describe(error))

    run = ray.remote(max_retries=0)(bootstrap(project_root(), "search.planning.measure", "run_measurement"))
    task = run.options(**demand.task_options)
    say(f"measuring {plural(len(targets), 'recipe')}")
    found, waiting = {}, {start(target): target for target in targets}
    while waiting:
        (done,), _ = ray.wait(list(waiting))
        target = waiting.pop(done)
        found[id(target)] = finish(target, done)
    for target in targets:
        if found[id(target)].problem.startswith(DIED):
            found[id(target)] = finish(target, start(target))
    return [found[id(target)] for target in targets]


DIED = "its worker died"


def _describe(error: Exception) -> str:
    """Return in one line why a worker died."""
    from ray.exceptions import OutOfMemoryError

    if isinstance(error, OutOfMemoryError):
        return f"{DIED}: the memory of the machine is too small"
    return f"{DIED}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def read_answer(target: Target, answer: dict[str, Any]) -> Measurement:
    """Return what a worker measured."""
    from training.cost import Cost

    cost = Cost(**answer["cost"]) if "cost" in answer else None
    return Measurement(target, cost, answer.get("problem", ""), answer.get("start_seconds", 0.0))


def run_measurement(
    recipe: dict[str, Any], level: str, cpus: float, gpus: float, uses_share: bool, submitted: float
) -> dict[str, Any]:
    """Measure one recipe in a Ray worker. Returns the fields of `Cost`, or the `problem` in one line."""
    import torch

    from training.cost import measure_cost

    waited = max(0.0, time.time() - submitted)
    try:
        given = read_recipe(recipe)
        cost = measure_cost(given, level, share_resources(given, cpus, gpus, uses_share))
    except UserError as error:
        return {"problem": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever it was, the plan names it beside the recipe
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return {"problem": f"out of memory: {(str(error).splitlines() or [''])[0]}"}
        return {"problem": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return {"cost": asdict(cost), "start_seconds": waited}
