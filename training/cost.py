"""What a recipe costs on this machine: a few batches of it are trained and evaluated, and scaled to whole epochs."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from training.data.load_data import load_data
from training.data.pipelines.loaders import choose_eval_batch
from training.data.pipelines.tensor_images import TensorImages
from training.loop.auto_values.finders import simplify
from training.process.resources import Resources
from training.recipe import Recipe
from training.resolve import resolve_recipe
from training.train import train

BATCHES = 2  # in the first attempt
LONG_SECONDS = 1.5  # a measured epoch of at least this time is exact enough
SMALL = {"cpu": 16, "cuda": 64}  # images that an epoch has at least
CPU_BATCH = 8  # on a CPU the time of an epoch hardly depends on the size of its batches


@dataclass(frozen=True)
class Cost:
    """Seconds of a training: those until its first epoch, and those of a whole epoch."""

    setup_seconds: float
    train_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float

    @property
    def epoch_seconds(self) -> float:
        return self.train_seconds + self.evaluation_seconds + self.checkpoint_seconds


def measure_cost(recipe: Recipe, level: str, resources: Resources) -> Cost:
    """Train two short epochs, the second of which is measured; again with more batches if that was too short.

    The recipe may contain `auto`; `level` is that of unfreeze, for recipes with milestones.

    Raises:
        torch.OutOfMemoryError: the memory of the GPU is too small.
    """
    data = load_data(recipe.data)
    recipe = resolve_recipe(recipe, data, resources.device)
    whole, val = recipe.data.epoch_size or len(data.train), len(data.val)
    if resources.device == "cpu" and recipe.batch_size != "auto":
        recipe = recipe.model_copy(update={"batch_size": min(CPU_BATCH, recipe.batch_size)})
    asked = recipe.batch_size
    if recipe.augmentation.backend == "tensor":
        TensorImages(data.train, recipe, "cpu")  # it stores the decoded images, where each training finds them
    # The size of `auto` is limited by the images of an epoch.
    size = whole if asked == "auto" else min(whole, max(SMALL[resources.device], BATCHES * asked))
    cost, seconds = _train_briefly(recipe, level, resources, size, whole, val)
    if size < whole and seconds < LONG_SECONDS:
        size = min(whole, round(size * LONG_SECONDS / max(seconds, LONG_SECONDS / 20)))
        cost, _ = _train_briefly(recipe, level, resources, size, whole, val)
    return cost


def _train_briefly(
    recipe: Recipe, level: str, resources: Resources, size: int, whole: int, val: int
) -> tuple[Cost, float]:
    """Train two epochs of `size` images. Return the cost of a whole one, and the seconds of the second short one.

    A whole epoch has `whole` images, and the whole validation `val`.
    """
    plain = simplify(recipe, level).without("progressive_resizing", "snapshots")
    kept = {"averaging": recipe.averaging, "compilation": recipe.compilation}
    data = recipe.data.model_copy(update={"epoch_size": size})
    short = plain.model_copy(update={"data": data, "epochs": 2, **kept})
    least = 1 if recipe.batch_size == "auto" else choose_eval_batch(short)
    count = max(least, round(val * size / whole))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(short, Path(folder), resources=resources, val_images=count)
    total_seconds = time.perf_counter() - began
    first, second = (report.metrics for report in outcome.reports)
    train_seconds, evaluation_seconds, checkpoint_seconds = (
        second.get(name, 0.0) - first.get(name, 0.0)
        for name in ("train_seconds", "evaluation_seconds", "checkpoint_seconds")
    )
    cost = Cost(
        setup_seconds=max(0.0, total_seconds - 2 * (train_seconds + evaluation_seconds + checkpoint_seconds)),
        train_seconds=whole / second["images_per_second"],
        evaluation_seconds=evaluation_seconds * val / min(count, val),
        checkpoint_seconds=checkpoint_seconds,
    )
    return cost, train_seconds
