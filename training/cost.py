"""What a recipe costs on this machine: a few batches of it are trained and evaluated, and scaled to whole epochs."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch

from training.data.load_data import load_data
from training.data.pipelines.loaders import choose_eval_batch
from training.loop.auto_values.finders import simplify
from training.loop.epoch_report import Report
from training.process.resources import MB, PeakMemory, Resources
from training.recipe import Recipe
from training.resolve import resolve_recipe
from training.score_metrics import PEAKS
from training.train import train

BATCHES = 2  # in the first attempt
LONG_SECONDS = 1.5  # a measured epoch of at least this time is exact enough
SMALL = 64  # images that an epoch has at least


@dataclass(frozen=True)
class Cost:
    """The cost of one recipe at one level of unfreeze: seconds of a whole epoch, and peaks of memory in MB (2**20 bytes).

    `device_memory_mb` is that of the GPU with what torch keeps reserved, or that of the process on a CPU. `ram_mb` is that
    of the process with its loader processes, and `floor_mb` what the process had before it loaded anything.
    """

    setup_seconds: float
    train_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    images_per_second: float
    train_memory_mb: float
    evaluation_memory_mb: float
    device_memory_mb: float
    ram_mb: float
    floor_mb: float
    batch_size: int


def measure_cost(recipe: Recipe, level: str, resources: Resources) -> Cost:
    """Train two short epochs, the second of which is measured; again with more batches if that was too short.

    The recipe may contain `auto`; `level` is that of unfreeze, for recipes with milestones.

    Raises:
        torch.OutOfMemoryError: the memory of the GPU is too small.
    """
    floor = psutil.Process().memory_info().rss / MB
    data = load_data(recipe.data)
    recipe = resolve_recipe(recipe, data, resources.device)
    whole, val = recipe.data.epoch_size or len(data.train), len(data.val)
    asked = recipe.batch_size
    # The size of `auto` is limited by the images of an epoch.
    size = whole if asked == "auto" else min(whole, max(SMALL, BATCHES * asked))
    cost, seconds = _train_briefly(recipe, level, resources, size, (whole, val))
    if size < whole and seconds < LONG_SECONDS:
        size = min(whole, round(size * LONG_SECONDS / max(seconds, LONG_SECONDS / 20)))
        cost, _ = _train_briefly(recipe, level, resources, size, (whole, val))
    return replace(cost, floor_mb=floor)


def _train_briefly(
    recipe: Recipe, level: str, resources: Resources, size: int, images: tuple[int, int]
) -> tuple[Cost, float]:
    """Train two epochs of `size` images. Return the cost of a whole one, and the seconds of the second short one.

    `images` are those of a whole epoch, and those of the whole validation.
    """
    whole, val = images
    plain = simplify(recipe, level).without("progressive_resizing", "snapshots")
    kept = {"averaging": recipe.averaging, "compilation": recipe.compilation}
    data = recipe.data.model_copy(update={"epoch_size": size})
    short = plain.model_copy(update={"data": data, "epochs": 2, **kept})
    least = 1 if recipe.batch_size == "auto" else choose_eval_batch(short)
    count = max(least, round(val * size / whole))
    memory, ram, reserved = PeakMemory("cpu"), 0.0, 0.0
    reports: list[Report] = []

    def on_report(report: Report) -> bool:
        nonlocal ram, reserved
        reports.append(report)
        # Processes of other devices count for themselves; on CPUs the report has their sum.
        peak = max(report.metrics.get(name, 0.0) for name in PEAKS)
        process_mb = peak if resources.device == "cpu" else memory.read_mb() or 0.0
        ram = max(ram, process_mb + (0.0 if recipe.data_parallel.devices > 1 else _measure_children_mb()))
        if resources.device == "cuda":
            reserved = max(reserved, torch.cuda.memory_reserved() / MB)
        return True

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(short, Path(folder), resources=resources, on_report=on_report, val_images=count)
    total_seconds = time.perf_counter() - began
    assert isinstance(outcome.recipe.batch_size, int)  # resolved
    first, second = (report.metrics for report in reports)
    train_seconds, evaluation_seconds, checkpoint_seconds = (
        second.get(name, 0.0) - first.get(name, 0.0)
        for name in ("train_seconds", "evaluation_seconds", "checkpoint_seconds")
    )
    train_mb, evaluation_mb = (max(first.get(name, 0.0), second.get(name, 0.0)) for name in PEAKS)
    speed = second["images_per_second"]
    cost = Cost(
        setup_seconds=max(0.0, total_seconds - 2 * (train_seconds + evaluation_seconds + checkpoint_seconds)),
        train_seconds=whole / speed,
        evaluation_seconds=evaluation_seconds * val / min(count, val),
        checkpoint_seconds=checkpoint_seconds,
        images_per_second=speed,
        train_memory_mb=train_mb,
        evaluation_memory_mb=evaluation_mb,
        device_memory_mb=max(train_mb, evaluation_mb, reserved),
        ram_mb=ram,
        floor_mb=0.0,
        batch_size=outcome.recipe.batch_size,
    )
    return cost, train_seconds


def _measure_children_mb() -> float:
    """Return the memory of the loader processes; what they share with this process and each other counts once."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            total += getattr(child.memory_full_info(), "uss", 0) / MB
        except psutil.Error:  # it has ended
            continue
    return total
