"""A loader that changes between images and features during a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from training.data.pipelines.loaders import TrainLoader, loader_options
from training.features.stored import StoredFeatures
from training.recipe import Recipe


class SwitchedLoader:
    """Batches of images, or the same batches as features while there are some.

    Args:
        find_images: Returns the loader of the images, which may prepare them at the first call.
        batches: The draws, or the positions, of each batch.
    """

    def __init__(self, find_images: Callable[[], TrainLoader], batches: BatchSampler | list[list[int]]) -> None:
        self.find_images = find_images
        self.features: DataLoader[Any] | None = None
        self.batch_sampler, self.sampler = batches, getattr(batches, "sampler", None)  # Lightning reads both

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.find_images() if self.features is None else self.features)

    def use(self, stored: StoredFeatures, recipe: Recipe, device: str) -> None:
        options = loader_options(recipe.seed, 0, device)
        self.features = DataLoader(stored, batch_sampler=self.batch_sampler, **options)
