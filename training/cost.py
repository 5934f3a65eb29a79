"""What a recipe costs on this machine: a few batches of it are trained and evaluated, and scaled to whole epochs."""

from __future__ import annotations

import tempfile
import time
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
PARTS = ("train_seconds", "evaluation_seconds", "checkpoint_seconds")
CPU_BATCH = 8  # on a CPU the time of an epoch hardly depends on the size of its batches


def measure_cost(recipe: Recipe, resources: Resources) -> tuple[float, float]:
    """Train two short epochs, the second of which is measured; again with more batches if that was too short.

    The recipe may contain `auto`; all of its model is trained.

    Returns:
        The seconds of a training until its first epoch, and those of each whole epoch.

    Raises:
        torch.OutOfMemoryError: the memory of the GPU is too small.
    """
    data = load_data(recipe.data)
    recipe = resolve_recipe(recipe, data, resources.device)
    whole, val = recipe.data.epoch_size or len(data.train), len(data.val)
    if resources.device == "cpu" and recipe.batch_size != "auto":
        recipe = recipe.model_copy(update={"batch_size": min(CPU_BATCH, recipe.batch_size)})
    if recipe.augmentation.backend == "tensor":
        TensorImages(data.train, recipe, "cpu")  # it stores the decoded images, where each training finds them
    # The size of `auto` is limited by the images of an epoch.
    least = whole if recipe.batch_size == "auto" else BATCHES * recipe.batch_size
    size = min(whole, max(SMALL[resources.device], least))
    setup, epoch, seconds = _train_briefly(recipe, resources, size, whole, val)
    if size < whole and seconds < LONG_SECONDS:
        size = min(whole, round(size * LONG_SECONDS / max(seconds, LONG_SECONDS / 20)))
        setup, epoch, _ = _train_briefly(recipe, resources, size, whole, val)
    return setup, epoch


def _train_briefly(recipe: Recipe, resources: Resources, size: int, whole: int, val: int) -> tuple[float, float, float]:
    """Train two epochs of `size` images. Return seconds: until the first, of a whole one, of training in the second.

    A whole epoch has `whole` images, and the whole validation `val`.
    """
    plain = simplify(recipe, "full").without("progressive_resizing", "snapshots")
    data = recipe.data.model_copy(update={"epoch_size": size})
    kept = {"averaging": recipe.averaging, "compilation": recipe.compilation}
    short = plain.model_copy(update={"data": data, "epochs": 2, **kept})
    count = max(1 if recipe.batch_size == "auto" else choose_eval_batch(short), round(val * size / whole))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        reports = train(short, Path(folder), resources=resources, val_images=count).reports
    total = time.perf_counter() - began
    first, second = (report.metrics for report in reports)
    training, evaluation, checkpoint = (second[name] - first.get(name, 0.0) for name in PARTS)
    epoch = whole / second["images_per_second"] + evaluation * val / min(count, val) + checkpoint
    return max(0.0, total - 2 * (training + evaluation + checkpoint)), epoch, training
