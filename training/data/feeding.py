"""Batches for the model: the same ones for a recipe whatever the number of loader workers, and after a resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader

from training.data.datasets import EvalImages, EvalTensor, TrainImages, keep_batch
from training.data.images import ImageData, ImagePart
from training.data.preprocess import KEPT_BYTES
from training.data.sampling import EpochSampler
from training.recipe import Recipe

EVAL_BATCH_SIZE = 256  # measured on one core: larger is not faster
SMALL_SIDE = 64
PROBE_SIZE = 2000  # images for train_accuracy: a standard error of .011 at worst


@dataclass(frozen=True)
class Loaders:
    train: DataLoader[Any]  # augmented
    val: DataLoader[Any]
    train_probe: DataLoader[Any]  # a fixed choice of training images, preprocessed as validation images are
    batch_sizes: tuple[int, ...]  # images of each training batch of an epoch, the same in every epoch

    def close(self) -> None:
        """End the worker processes now.

        They end with their loader in any case. But where that is in a reference cycle, as a Trainer and a traceback
        are, Python closes the queue to a worker before torch says goodbye through it, and torch waits 5 s for each.
        """
        for loader in (self.train, self.val, self.train_probe):
            iterator, loader._iterator = loader._iterator, None
            if iterator is not None:
                iterator._shutdown_workers()  # type: ignore[attr-defined]


def make_loaders(data: ImageData, recipe: Recipe, *, workers: int, pin_memory: bool) -> Loaders:
    """Build the loaders of one run; each yields (float32 (N, 3, side, side) normalised, int64 (N,)).

    The recipe's preprocessing holds no `auto` any more. The test part is not touched.
    """
    cv2.setNumThreads(1)  # one image is too little work for a pool of threads
    sampler = EpochSampler(len(data.train), recipe.data.epoch_size, recipe.seed)
    # BatchNorm cannot take a batch of one.
    drop_last = len(sampler) > 1 and len(sampler) % recipe.batch_size == 1
    options = _options(recipe.seed, _needed(workers, data.train, recipe), pin_memory)
    train = DataLoader(
        TrainImages(data.train, recipe), batch_size=recipe.batch_size, sampler=sampler, drop_last=drop_last, **options
    )
    val = make_eval_loader(data.val, recipe, workers=workers, pin_memory=pin_memory)
    probe = data.train.select(choose_probe(len(data.train), recipe.data.split_seed))
    train_probe = make_eval_loader(probe, recipe, workers=workers, pin_memory=pin_memory)
    return Loaders(train, val, train_probe, list_batch_sizes(len(sampler), recipe.batch_size, drop_last))


def make_eval_loader(part: ImagePart, recipe: Recipe, *, workers: int, pin_memory: bool) -> DataLoader[Any]:
    """Build a loader over one part in its own order, without augmentation."""
    options = _options(recipe.seed, _needed(workers, part, recipe), pin_memory)
    size = recipe.preprocessing.image_size
    assert isinstance(size, int)  # resolved
    small = part.in_memory and len(part) * 3 * size * size * 4 <= KEPT_BYTES
    dataset = EvalTensor(part, recipe.preprocessing) if small else EvalImages(part, recipe.preprocessing)
    return DataLoader(dataset, batch_size=EVAL_BATCH_SIZE, shuffle=False, **options)


def choose_probe(count: int, seed: int) -> np.ndarray:
    """Choose the training images on which train_accuracy is measured: the same ones in every trial."""
    return np.sort(np.random.default_rng([seed, count]).permutation(count)[:PROBE_SIZE])


def list_batch_sizes(count: int, batch_size: int, drop_last: bool) -> tuple[int, ...]:
    full, rest = divmod(count, batch_size)
    return (batch_size,) * full + ((rest,) if rest and not drop_last else ())


def _needed(workers: int, part: ImagePart, recipe: Recipe) -> int:
    """Small images in memory are prepared faster than they are sent from process to process."""
    size = recipe.preprocessing.image_size
    assert isinstance(size, int)  # resolved
    return 0 if part.in_memory and size <= SMALL_SIDE else workers


def _options(seed: int, workers: int, pin_memory: bool) -> dict[str, Any]:
    return {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "worker_init_fn": _calm_threads if workers > 0 else None,
        "pin_memory": pin_memory,
        "collate_fn": keep_batch,
        # A loader without one draws from torch's global generator, and so would shift every draw after it.
        "generator": torch.Generator().manual_seed(seed),
    }


def _calm_threads(worker: int) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
