"""What was measured of a space: some recipes, trained for a few batches, and kept in the storage folder for later sweeps."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.formatting import plural
from search.display.phases import Phases
from search.planning.cost_model import (
    CostModel,
    CostTarget,
    Features,
    Kind,
    ModelError,
    choose_checks,
    choose_targets,
    draw_recipes,
    epoch_seconds,
    list_targets,
    measure_error,
)
from search.planning.packing import Needs
from search.runner.machines.capacity import Capacity
from search.runner.machines.ray_failures import describe_failure
from search.runner.start.prepare import PreparedSweep
from search.runner.worker import bootstrap, share_resources
from spaces.parameters.domains import unparse
from training.errors import UserError, describe_error, first_line
from training.process.text_files import keep_json, recall_json
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from ray import ObjectRef

    from training.cost import Cost

    Answer = tuple[Cost | None, str, float]

logger = logging.getLogger("search")

FORMAT = 1
LIMIT_SHARE, LEAST_LIMIT_SECONDS = 0.1, 60.0  # of the time of the sweep without early stopping
DIED = "its worker died"
WORDS = {"base": "the baseline", "check": "random draw", "heaviest": "most memory"}  # of targets, by their kind


@dataclass(frozen=True)
class KeptMeasurement:
    """A measurement in a file."""

    recipe: dict[str, object]
    level: str
    kind: Kind
    cost: dict[str, int | float] | None = None
    problem: str = ""
    start_seconds: float = 0.0


@dataclass(frozen=True)
class KeptSpace:
    """The measurements of a space in a file."""

    format: int
    left_out: list[str]
    measurements: list[KeptMeasurement]


@dataclass(frozen=True)
class Measurement:
    """The cost of a target, or the reason why it cannot run."""

    target: CostTarget
    cost: Cost | None = None
    problem: str = ""
    start_seconds: float = 0.0  # from the request until the worker could begin, with its imports and its queue


@dataclass(frozen=True)
class MeasuredSpace:
    """The measurements, the first of which is the baseline, and the model that predicts the cost of other recipes."""

    measurements: list[Measurement]
    left_out: list[str]  # choices whose effect on the cost was not measured
    is_gpu: bool
    candidates: list[CostTarget]  # random recipes of the space

    @property
    def _points(self) -> list[tuple[Kind, tuple[Features, Cost]]]:
        return [(one.target.kind, (one.target.features, one.cost)) for one in self.measurements if one.cost]

    @cached_property
    def model(self) -> CostModel:
        """The model of everything that was measured."""
        return CostModel([point for _, point in self._points], self.is_gpu)

    @property
    def error(self) -> ModelError | None:
        """The error on the recipes that were measured for this purpose, of the model without them."""
        model = CostModel([point for kind, point in self._points if kind != "check"], self.is_gpu)
        return measure_error(model, [point for kind, point in self._points if kind == "check"])

    @cached_property
    def costs(self) -> list[Cost]:
        """The predicted costs of recipes that the sweep may draw."""
        return [self.model.predict(target.features) for target in self.candidates]

    @property
    def needs(self) -> Needs:
        """The largest peaks among them."""
        device = max(cost.device_memory_mb for cost in self.costs) if self.is_gpu else 0.0
        return Needs(max(cost.ram_mb for cost in self.costs), device)


def measure_space(plan: PreparedSweep, uses_share: bool, phases: Phases) -> MeasuredSpace:
    """Measure a few recipes of every branch, then the one that seems to need most memory, and some to check the model.

    That takes a minute, or a tenth of the time of the sweep if that is more; what is then not measured is left out.
    """
    began = time.monotonic()
    candidates = list_targets(draw_recipes(plan.space, plan.resolve))
    targets, left_out = choose_targets(candidates)

    def is_enough(measurements: list[Measurement]) -> bool:
        spent = time.monotonic() - began
        cost = next((one.cost for one in measurements if one.target.kind == "base"), None)
        return cost is not None and spent > limit_seconds(cost, targets[0].recipe.epochs, plan)

    measured = measure_targets(targets, targets[0], plan.capacity, uses_share, phases, is_enough)
    if not any(one.cost for one in measured):
        raise UserError(f"No recipe of the space can be trained here: {measured[0].problem}")
    others = [target.features for target in targets[len(measured) :]]
    for name, value in targets[0].features.items():
        if name not in left_out and any(features.get(name) != value for features in others):
            left_out.append(name)
    measured_space = MeasuredSpace(measured, left_out, plan.capacity.demand.gpus > 0, candidates)
    checks = [] if is_enough(measured) else choose_checks(candidates, targets)
    if heaviest := _find_heaviest(measured_space, checks):
        checks.append(heaviest)
    more = measure_targets(checks, targets[0], plan.capacity, uses_share, phases) if checks else []
    return replace(measured_space, measurements=measured + more)


def limit_seconds(cost: Cost, epochs: int, plan: PreparedSweep) -> float:
    """Return the time that the measurements may take, by the cost of the base and its epochs."""
    trial = cost.setup_seconds + epochs * epoch_seconds(cost)
    return max(LEAST_LIMIT_SECONDS, LIMIT_SHARE * plan.space.search.trials * trial / max(1, plan.capacity.slots))


def _find_heaviest(measured: MeasuredSpace, checks: Sequence[CostTarget]) -> CostTarget | None:
    """Return the candidate that seems to need most memory; None if it is measured anyway."""
    checked = {id(target.recipe) for target in checks}
    others = [target for target in measured.candidates if id(target.recipe) not in checked]
    heaviest = max(others, key=lambda target: measured.model.predict(target.features).device_memory_mb, default=None)
    if heaviest is None or any(one.target.features == heaviest.features for one in measured.measurements):
        return None
    return replace(heaviest, kind="heaviest")


def measure_targets(
    targets: Sequence[CostTarget],
    base: CostTarget,
    capacity: Capacity,
    uses_share: bool,
    phases: Phases,
    is_enough: Callable[[list[Measurement]], bool] = lambda measurements: False,
) -> list[Measurement]:
    """Measure targets in their order until `is_enough`; each is named with its difference from `base` when it is done.

    As many are measured at a time as trials will run, so that they share the machine as trials do. One that lost its
    worker is measured again, alone, before it counts as impossible.
    """
    import ray
    from ray.exceptions import RayError

    demand = capacity.demand

    def start(target: CostTarget) -> ObjectRef[Answer]:
        share = (demand.cpus, demand.gpus, uses_share)
        answer: ObjectRef[Answer] = task.remote(target.recipe.model_dump(), target.level, *share, time.time())
        return answer

    def finish(target: CostTarget, answer: ObjectRef[Answer]) -> Measurement:
        try:
            return Measurement(target, *ray.get(answer))
        except RayError as error:
            return Measurement(target, problem=f"{DIED}: {describe_failure(error)}")

    run = ray.remote(max_retries=0)(bootstrap("search.planning.measured_space", "run_measurement"))
    task = run.options(**demand.task_options)
    name = f"measuring {plural(len(targets), 'recipe')}"
    phases.begin(name)
    measurements: dict[int, Measurement] = {}  # by the place of the target
    waiting: dict[ObjectRef[Answer], int] = {}
    at_once = min(max(1, capacity.slots), len(targets))  # Ray waits for a machine if there is none yet
    left = iter(range(len(targets)))
    while True:
        for place in islice(left, max(0, at_once - len(waiting))):
            waiting[start(targets[place])] = place
        if not waiting:
            break
        (done,), _ = ray.wait(list(waiting))
        place = waiting.pop(done)
        measurements[place] = finish(targets[place], done)
        phases.follow(f"{name}: {len(measurements)} done")
        phases.tell(f"{len(measurements)}/{len(targets)} {_describe(measurements[place], base)}")
        if is_enough(list(measurements.values())):
            left = iter(())
    for place, measurement in measurements.items():
        if measurement.problem.startswith(DIED):
            measurements[place] = finish(measurement.target, start(measurement.target))
    return [measurements[place] for place in sorted(measurements)]


def _describe(measurement: Measurement, base: CostTarget) -> str:
    name = WORDS.get(measurement.target.kind) or measurement.target.differs_from(base)
    cost = measurement.cost
    return f"{name}: {f'{cost.images_per_second:,.0f} images per second' if cost else measurement.problem}"


def run_measurement(
    recipe: dict[str, object], level: str, cpus: float, gpus: float, uses_share: bool, submitted: float
) -> Answer:
    """Measure one recipe in a Ray worker. Returns what a `Measurement` has beside its target."""
    import torch

    from training.cost import measure_cost

    waited = max(0.0, time.time() - submitted)
    try:
        given = read_recipe(recipe)
        cost = measure_cost(given, level, share_resources(given, cpus, gpus, uses_share))
    except UserError as error:
        return None, str(error), 0.0
    except Exception as error:  # noqa: BLE001 - whatever it was, the plan names it beside the recipe
        is_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        return None, f"out of memory: {first_line(error)}".rstrip(": ") if is_memory else describe_error(error), 0.0
    return cost, "", waited


def file_of(storage: Path, plan: PreparedSweep) -> Path:
    """Return the file for a space, its data and the kind of device; it may not exist."""
    demand, digest = plan.capacity.demand, (plan.dataset or {}).get("digest")
    parts = [unparse(plan.space.recipe), digest, demand.gpus > 0, demand.accelerator, sorted(Recipe.plugins().items())]
    name = hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
    return storage / ".plans" / f"{name}.json"


def save(measured: MeasuredSpace, file: Path) -> None:
    """Keep the measurements, if the storage can be written to."""
    rows = list(map(_write, measured.measurements))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        keep_json(file, {"format": FORMAT, "left_out": measured.left_out, "measurements": rows})
    except OSError as error:
        logger.warning("%s: the measurements are not kept (%s).", file, error.strerror)


def recall(plan: PreparedSweep, file: Path) -> MeasuredSpace | None:
    """Return the measurements of an earlier `sweep plan` of the same space and data; None if there are none."""
    kept = recall_json(file, KeptSpace)
    try:
        rows = [_read(row) for row in kept.measurements] if kept and kept.format == FORMAT else []
    except (TypeError, UserError):  # of another version: measure again
        return None
    if kept is None or not any(one.cost for one in rows):
        return None
    candidates = list_targets(draw_recipes(plan.space, plan.resolve))
    return MeasuredSpace(rows, kept.left_out, plan.capacity.demand.gpus > 0, candidates)


def _write(measurement: Measurement) -> dict[str, object]:
    target, cost = measurement.target, asdict(measurement.cost) if measurement.cost else None
    kept = KeptMeasurement(
        target.recipe.model_dump(), target.level, target.kind, cost, measurement.problem, measurement.start_seconds
    )
    return asdict(kept)


def _read(row: KeptMeasurement) -> Measurement:
    from training.cost import Cost

    cost = Cost(**row.cost) if row.cost else None  # type: ignore[arg-type]  # JSON keeps whole numbers whole
    target = CostTarget(read_recipe(row.recipe), row.level, row.kind)
    return Measurement(target, cost, row.problem, row.start_seconds)
