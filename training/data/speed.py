"""How fast each backend feeds a recipe on this machine, in turns, so that a busy moment strikes all alike."""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import median
from typing import Any

from training.data.feeding import make_loaders
from training.data.images import ImageData
from training.errors import UserError
from training.recipe import Recipe

BACKENDS = ("albumentations", "tensor", "dali")


def measure_backends(
    data: ImageData, recipe: Recipe, device: str, *, workers: int, seconds: float = 1.0, turns: int = 3
) -> dict[str, float | str]:
    """Training images a second by backend, the median of the turns; a sentence where a backend cannot."""
    loaders: dict[str, Any] = {}
    found: dict[str, float | str] = {}
    try:
        for backend in BACKENDS:
            try:
                changed = with_backend(recipe, backend)
                if refused := changed.augmentation.conflict(changed):
                    raise UserError(refused)
                loaders[backend] = make_loaders(data, changed, workers=workers, device=device)
                run_for(loaders[backend].train, 0.0)  # the first batch starts workers and pipelines
            except UserError as error:
                found[backend] = str(error)
        speeds: dict[str, list[float]] = {backend: [] for backend in loaders}
        for _ in range(turns):
            for backend, one in loaders.items():
                speeds[backend].append(run_for(one.train, seconds))
    finally:
        for one in loaders.values():
            one.close()
    return found | {backend: median(values) for backend, values in speeds.items()}


def with_backend(recipe: Recipe, backend: str) -> Recipe:
    return recipe.model_copy(update={"augmentation": recipe.augmentation.model_copy(update={"backend": backend})})


def run_for(loader: Iterable[Any], seconds: float) -> float:
    """Images a second over at least so many seconds and one batch, epoch after epoch."""
    start, count = time.perf_counter(), 0
    while True:
        for images, _ in loader:
            count += len(images)
            if time.perf_counter() - start >= seconds:
                return count / (time.perf_counter() - start)
