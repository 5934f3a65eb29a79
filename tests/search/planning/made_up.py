"""Prepared sweeps and measurements with known costs, without Ray and without training."""

from search.planning.cost_model import choose_checks, choose_targets, draw_recipes, list_targets
from search.planning.measured_space import MeasuredSpace, Measurement
from search.runner.machines.capacity import Capacity, Demand
from search.runner.machines.cluster import Node
from search.runner.start.prepare import PreparedSweep
from spaces.load import load_space
from training.cost import Cost
from training.recipe import Recipe

DEMAND = Demand(1, 0)
NODE = Node("1", "one", 2, 0, memory_mb=8000)
FULL, BF16, PER_IMAGE = 3.0, 0.5, 0.01  # factors in time, and seconds of the base for an image


def resolve(recipe: Recipe) -> Recipe:
    preprocessing = recipe.preprocessing.model_copy(update={"image_size": 32})
    return recipe.model_copy(update={"preprocessing": preprocessing})


def prepare(space="quick", *overrides, demand=DEMAND, node=NODE, gpu_mb=0.0):
    capacity = Capacity(demand, [node])
    loaded = load_space(space, list(overrides))
    return PreparedSweep(loaded, capacity, resolve, {}, {"digest": "d1"}, (), (node,), gpu_mb)


def cost_of(target, noise=1.0):
    """The cost of a recipe: factors for the level and the precision, and memory that grows with the batch."""
    size = float(target.recipe.batch_size)
    seconds = 200 * PER_IMAGE * noise * {"full": FULL}.get(target.level, 1.0) * (size / 32) ** -0.5
    seconds *= BF16 if target.recipe.precision.mode == "bf16-mixed" else 1.0
    memory = 500 + 4 * size
    return Cost(0.5, seconds, 0.2, 0.1, 200 / seconds, memory, 450, memory, memory, 400, int(size))


def measure_made_up(plan, problem=lambda target: "", cost=cost_of):
    candidates = list_targets(draw_recipes(plan.space, plan.resolve, 60))
    targets, left_out = choose_targets(candidates)
    targets += choose_checks(candidates, targets)
    found = [
        Measurement(target, problem=problem(target)) if problem(target) else Measurement(target, cost(target))
        for target in targets
    ]
    return MeasuredSpace(found, left_out, plan.capacity.demand.gpus > 0, candidates)
