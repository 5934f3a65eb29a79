"""Measurements with known costs, without training."""

from dataclasses import dataclass

from search.core.cost_model import CostTarget, choose_checks, choose_targets, draw_recipes, list_targets
from spaces.load import load_space
from training.cost import Cost
from training.recipe import Recipe

FULL, BF16, PER_IMAGE = 3.0, 0.5, 0.01  # factors in time, and seconds of the base for an image


@dataclass(frozen=True)
class MadeUp:
    """Random recipes of a space, those that were measured, and random ones that check the model, with their costs."""

    candidates: list[CostTarget]
    fitted: list[tuple[CostTarget, Cost]]
    checks: list[tuple[CostTarget, Cost]]


def resolve(recipe: Recipe) -> Recipe:
    preprocessing = recipe.preprocessing.model_copy(update={"image_size": 32})
    return recipe.model_copy(update={"preprocessing": preprocessing})


def cost_of(target, noise=1.0):
    """The cost of a recipe: factors for the level and the precision, and memory that grows with the batch."""
    size = float(target.recipe.batch_size)
    seconds = 200 * PER_IMAGE * noise * {"full": FULL}.get(target.level, 1.0) * (size / 32) ** -0.5
    seconds *= BF16 if target.recipe.precision.mode == "bf16-mixed" else 1.0
    memory = 500 + 4 * size
    return Cost(0.5, seconds, 0.2, 0.1, 200 / seconds, memory, 450, memory, memory, 400, int(size))


def measure_made_up(space="quick"):
    candidates = list_targets(draw_recipes(load_space(space), resolve, 60))
    targets, _ = choose_targets(candidates)
    checks = choose_checks(candidates, targets)
    return MadeUp(candidates, [(one, cost_of(one)) for one in targets], [(one, cost_of(one)) for one in checks])
