"""What was measured of a space: kept as a file in the storage folder, for sweeps of the same space and data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from search.planning.cost_model import CostModel, ModelError, Point, epoch_seconds, measure_error
from search.planning.features import list_levels
from search.planning.measure import Measurement, measure_targets, read_answer
from search.planning.packing import Needs
from search.planning.targets import Target, choose_checks, choose_targets, draw_recipes, list_targets
from search.runner.start.plan import Plan
from spaces.parameters.domains import unparse
from training.errors import UserError
from training.recipe import Recipe, read_recipe

FORMAT = 1


@dataclass(frozen=True)
class MeasuredSpace:
    """The measurements, and the model that predicts the cost of the other recipes."""

    measurements: list[Measurement]
    left_out: list[str]  # choices whose effect on the cost was not measured
    is_gpu: bool
    candidates: list[Target]  # random recipes of the space

    @property
    def points(self) -> list[Point]:
        return [Point(one.target.features, one.cost) for one in self.measurements if one.cost is not None]

    @property
    def model(self) -> CostModel:
        """The model of everything that was measured."""
        return CostModel(self.points, self.is_gpu)

    @property
    def error(self) -> ModelError | None:
        """The error on the recipes that were measured for this purpose, of the model without them."""
        fitted = [one for one in self.measurements if one.target.kind != "check"]
        checks = [one for one in self.measurements if one.target.kind == "check"]
        points = [[Point(one.target.features, one.cost) for one in part if one.cost] for part in (fitted, checks)]
        return measure_error(CostModel(points[0], self.is_gpu), points[1])

    @property
    def start_seconds(self) -> float:
        """The time until the first trial of a worker can begin: that of the recipe that was measured first."""
        return self.measurements[0].start_seconds

    @property
    def needs(self) -> Needs:
        """The largest peaks of the recipes that the sweep may draw."""
        model = self.model
        costs = [model.predict(target.features) for target in self.candidates]
        device = max(cost.device_memory_mb for cost in costs) if self.is_gpu else 0.0
        return Needs(max(cost.ram_mb for cost in costs), device)


def measure_space(plan: Plan, uses_share: bool, say: Callable[[str], None]) -> MeasuredSpace:
    """Measure a few recipes of every branch, then the one that seems to need most memory, and some to check the model.

    Raises:
        UserError: no recipe can be trained here.
    """
    demand = plan.capacity.demand
    candidates = list_targets(draw_recipes(plan.space, plan.resolve))
    targets, left_out = choose_targets(candidates)
    measured = measure_targets(targets, demand, uses_share, say)
    if not any(one.cost for one in measured):
        raise UserError(f"No recipe of the space can be trained here: {measured[0].problem}")
    found = MeasuredSpace(measured, left_out, demand.gpus > 0, candidates)
    checks = choose_checks(candidates, targets)
    if heaviest := _find_heaviest(found, {id(target.recipe) for target in checks}):
        checks.append(heaviest)
    more = measure_targets(checks, demand, uses_share, say) if checks else []
    return replace(found, measurements=measured + more)


def _find_heaviest(found: MeasuredSpace, taken: set[int]) -> Target | None:
    model = found.model
    others = [target for target in found.candidates if id(target.recipe) not in taken]
    heaviest = max(others, key=lambda target: model.predict(target.features).device_memory_mb, default=None)
    if heaviest is None or any(one.target.features == heaviest.features for one in found.measurements):
        return None
    return Target(heaviest.recipe, heaviest.level, "heaviest")


def file_of(storage: Path, plan: Plan) -> Path:
    """Return the file for a space, its data and the kind of device; it may not exist."""
    parts: list[object] = [
        unparse(plan.space.recipe),
        (plan.dataset or {}).get("digest"),
        plan.capacity.demand.gpus > 0,
    ]
    parts += [plan.capacity.demand.accelerator, sorted(Recipe.own().items())]
    name = hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
    return storage / ".plans" / f"{name}.json"


def save(found: MeasuredSpace, file: Path) -> None:
    """Keep the measurements."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [_write(one) for one in found.measurements]
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"format": FORMAT, "left_out": found.left_out, "measurements": rows}))
    partial.replace(file)


def recall(plan: Plan, file: Path) -> MeasuredSpace | None:
    """Return the measurements of an earlier `sweep plan` of the same space and data; None if there are none."""
    try:
        kept = json.loads(file.read_text())
        rows = [_read(row) for row in kept["measurements"]] if kept["format"] == FORMAT else []
        left_out = list(kept["left_out"])
    except (OSError, ValueError, TypeError, KeyError, UserError):  # of another version, or damaged: measure again
        return None
    if not any(one.cost for one in rows):
        return None
    candidates = list_targets(draw_recipes(plan.space, plan.resolve))
    return MeasuredSpace(rows, left_out, plan.capacity.demand.gpus > 0, candidates)


def _write(one: Measurement) -> dict[str, Any]:
    target = {"recipe": one.target.recipe.model_dump(), "level": one.target.level, "kind": one.target.kind}
    answer = {"cost": asdict(one.cost)} if one.cost else {"problem": one.problem}
    return target | answer | {"start_seconds": one.start_seconds}


def _read(row: dict[str, Any]) -> Measurement:
    return read_answer(Target(read_recipe(row["recipe"]), row["level"], row["kind"]), row)


def time_recipe(model: CostModel, recipe: Recipe) -> tuple[float, list[float]]:
    """Return the seconds of a trial's start and of each of its epochs."""
    epochs: list[float] = []
    setup = 0.0
    for level, count in list_levels(recipe):
        cost = model.predict(Target(recipe, level).features)
        setup = setup or cost.setup_seconds
        for _ in range(count):
            saved = cost.train_seconds * (1 - _area(recipe, len(epochs)))
            epochs.append(epoch_seconds(cost) - saved)
    return setup, epochs


def _area(recipe: Recipe, epoch: int) -> float:
    """Return the area of the training images in an epoch as a share of the full area."""
    side = recipe.preprocessing.image_size
    if not isinstance(side, int) or recipe.progressive_resizing.start == 1:
        return 1.0
    return (recipe.progressive_resizing.side_in(epoch, recipe.epochs, side) / side) ** 2
