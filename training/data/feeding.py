"""Batches for the model: the same ones for a recipe whatever the number of loader workers, and after a resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader

from training.data.datasets import GAP, EvalImages, EvalPixels, EvalTensor, TrainImages, keep_batch
from training.data.images import ImageData, ImageFiles, ImagePart
from training.data.preprocess import fit_all, resized_side
from training.data.sampling import EpochSampler
from training.data.tensor_images import TensorImages
from training.recipe import Recipe
from training.techniques.class_balance import BalancedSampler

EVAL_BATCH_SIZE = 256  # measured on one core: larger is not faster
SMALL_SIDE = 64
FLOAT_BYTES = 32 * 2**20  # of a part that is kept normalised: above that, floats would be most of a trial's memory
PROBE_SIZE = 2000  # images for train_accuracy: a standard error of .011 at worst


@dataclass(frozen=True)
class Loaders:
    train: Any  # augmented: a DataLoader, or what walks and quacks like one
    val: DataLoader[Any]
    train_probe: DataLoader[Any]  # a fixed choice of training images, preprocessed as validation images are
    batch_sizes: tuple[int, ...]  # images of each training batch of an epoch, the same in every epoch

    def close(self) -> None:
        """End the worker processes now.

        They end with their loader in any case. But where that is in a reference cycle, as a Trainer and a traceback
        are, Python closes the queue to a worker before torch says goodbye through it, and torch waits 5 s for each.
        """
        for loader in (self.train, self.val, self.train_probe):
            if not isinstance(loader, DataLoader):
                loader.close()
                continue
            iterator, loader._iterator = loader._iterator, None
            if iterator is not None:
                iterator._shutdown_workers()  # type: ignore[attr-defined]


def make_loaders(data: ImageData, recipe: Recipe, *, workers: int, device: str = "cpu") -> Loaders:
    """Build the loaders of one run; each yields (float32 (N, 3, side, side) normalised, int64 (N,)).

    The recipe's preprocessing and backend hold no `auto` any more. The test part is not touched.

    Raises:
        UserError: this machine cannot use the backend, or an image cannot be read.
    """
    assert isinstance(recipe.batch_size, int)  # resolved
    cv2.setNumThreads(1)  # one image is too little work for a pool of threads
    balanced = data.train.labels if isinstance(recipe.class_balance, BalancedSampler) else None
    sampler = EpochSampler(len(data.train), recipe.data.epoch_size, recipe.seed, balanced)
    # BatchNorm cannot take a batch of one.
    drop_last = len(sampler) > 1 and len(sampler) % recipe.batch_size == 1
    train = _make_train_loader(data.train, recipe, sampler, drop_last, workers, device)
    val = make_eval_loader(data.val, recipe, workers=workers, device=device)
    probe = data.train.select(choose_probe(len(data.train), recipe.data.split_seed))
    train_probe = make_eval_loader(probe, recipe, workers=workers, device=device)
    return Loaders(train, val, train_probe, list_batch_sizes(len(sampler), recipe.batch_size, drop_last))


def _make_train_loader(
    part: ImagePart, recipe: Recipe, sampler: EpochSampler, drop_last: bool, workers: int, device: str
) -> Any:
    order: dict[str, Any] = {"batch_size": recipe.batch_size, "sampler": sampler, "drop_last": drop_last}
    if recipe.augmentation.backend == "dali":
        from training.data.dali_loader import DaliLoader

        return DaliLoader(part, recipe, BatchSampler(**order), max(1, workers), device)
    if recipe.augmentation.backend == "tensor":
        return DataLoader(TensorImages(part, recipe, device), **order, **_options(recipe.seed, 0, "cpu"))
    images = TrainImages(part, recipe)
    return DataLoader(images, **order, **_options(recipe.seed, _needed(workers, images.images, recipe), device))


def make_eval_loader(part: ImagePart, recipe: Recipe, *, workers: int, device: str = "cpu") -> DataLoader[Any]:
    """Build a loader over one part in its own order, without augmentation.

    Raises:
        UnreadableImage: among files that are few enough to be decoded now.
    """
    preprocessing = recipe.preprocessing
    pixels = fit_all(part.reduced_to(GAP * resized_side(preprocessing)).images, preprocessing)
    dataset: Any
    if isinstance(pixels, ImageFiles) or pixels.shape[1] != preprocessing.image_size:
        dataset = EvalImages(part, preprocessing)
    elif 4 * pixels.nbytes <= FLOAT_BYTES:
        dataset = EvalTensor(part, preprocessing, pixels)
    else:
        dataset = EvalPixels(part, preprocessing, pixels)
    options = _options(recipe.seed, _needed(workers, pixels, recipe), device)
    return DataLoader(dataset, batch_size=EVAL_BATCH_SIZE, shuffle=False, **options)


def choose_probe(count: int, seed: int) -> np.ndarray:
    """Choose the training images on which train_accuracy is measured: the same ones in every trial."""
    return np.sort(np.random.default_rng([seed, count]).permutation(count)[:PROBE_SIZE])


def list_batch_sizes(count: int, batch_size: int, drop_last: bool) -> tuple[int, ...]:
    full, rest = divmod(count, batch_size)
    return (batch_size,) * full + ((rest,) if rest and not drop_last else ())


def _needed(workers: int, images: np.ndarray | ImageFiles, recipe: Recipe) -> int:
    """Small images in memory are prepared faster than they are sent from process to process."""
    size = recipe.preprocessing.image_size
    assert isinstance(size, int)  # resolved
    return 0 if isinstance(images, np.ndarray) and size <= SMALL_SIDE else workers


def _options(seed: int, workers: int, device: str) -> dict[str, Any]:
    return {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "worker_init_fn": _calm_threads if workers > 0 else None,
        "pin_memory": device == "cuda",
        "collate_fn": keep_batch,
        # A loader without one draws from torch's global generator, and so would shift every draw after it.
        "generator": torch.Generator().manual_seed(seed),
    }


def _calm_threads(worker: int) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
