"""Measure how fast each backend loads images on this machine, in turns, so that other load affects all equally."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from training.contract.policy import ALL_BACKENDS
from training.data.files.images import ImageData
from training.data.pipelines.datasets import Batch
from training.data.pipelines.loaders import Loaders, make_loaders
from training.errors import UserError
from training.recipe import Recipe
from training.resolve import with_backend

TURNS = 7
TURN_SECONDS = 0.5


@dataclass(frozen=True)
class Speed:
    """Training images per second over several turns."""

    median: float
    least: float
    most: float


def measure_backends(data: ImageData, recipe: Recipe, device: str, *, workers: int) -> dict[str, Speed | str]:
    """Return the speed of each backend, or a sentence if a backend does not support this resolved recipe.

    Each has `TURNS` turns of `TURN_SECONDS`, with `workers` loader processes, on "cpu" or "cuda".
    """
    loaders: dict[str, Loaders] = {}
    refusals: dict[str, Speed | str] = {}
    try:
        for backend in ALL_BACKENDS:
            try:
                changed = with_backend(recipe, backend)
                if refused := changed.augmentation.conflict(changed):
                    raise UserError(refused)
                loaders[backend] = make_loaders(data, changed, workers=workers, device=device)
                run_for(loaders[backend].train, 0.0)  # the first batch starts workers and pipelines
            except UserError as error:
                refusals[backend] = str(error)
                if refusing := loaders.pop(backend, None):
                    refusing.close()
        speeds: dict[str, list[float]] = {backend: [] for backend in loaders}
        for _ in range(TURNS):
            for backend, backend_loaders in loaders.items():
                speeds[backend].append(run_for(backend_loaders.train, TURN_SECONDS))
    finally:
        for backend_loaders in loaders.values():
            backend_loaders.close()
    return refusals | {backend: Speed(median(values), min(values), max(values)) for backend, values in speeds.items()}


def run_for(loader: Iterable[Batch], seconds: float) -> float:
    """Return the images per second, measured over at least `seconds` seconds and one batch."""
    start, count = time.perf_counter(), 0
    while True:
        for images, _ in loader:
            count += len(images)
            if time.perf_counter() - start >= seconds:
                return count / (time.perf_counter() - start)
