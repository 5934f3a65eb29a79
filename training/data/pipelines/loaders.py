"""Loaders of the batches. They are the same for any number of loader workers, and after a resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from training.contract.specs import Preprocessing
from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.data.pipelines.datasets import GAP, Batch, EvalImages, TrainImages, keep_batch
from training.data.pipelines.sampling import EpochSampler, ShareBatches
from training.data.pipelines.tensor_images import TensorImages
from training.data.preprocessing.transform import fit_all, resized_side
from training.distributed.rank import ALONE, Rank
from training.errors import UserError
from training.recipe import Recipe
from training.techniques.loss.class_balance import BalancedSampler

if TYPE_CHECKING:
    from training.data.pipelines.dali_loader import DaliLoader

T = TypeVar("T")
TrainLoader: TypeAlias = "DataLoader[Batch] | DaliLoader"

LARGEST_EVAL_BATCH = 256  # larger batches are not faster, measured on one core
SMALL_BATCH_PIXELS = 2**16  # 64 images of 32×32: so few take little memory, and smaller batches take longer
SMALL_SIDE = 64
FEWEST_FOR_STATISTICS = 8  # images of a batch on one device with which BatchNorm's statistics are usable


@dataclass(frozen=True)
class Loaders:
    """The order of the batches, and loaders that are built, with their images, when they are used first."""

    build_train: Callable[[], TrainLoader]
    build_val: Callable[[], DataLoader[Batch]]
    train_batches: ShareBatches  # the draws of each batch
    val_batches: list[list[int]]  # the positions of each batch

    @cached_property
    def train(self) -> TrainLoader:
        """Augmented images."""
        return self.build_train()

    @cached_property
    def val(self) -> DataLoader[Batch]:
        return self.build_val()

    def close(self) -> None:
        """End the worker processes now.

        They also end when their loader is deleted. But if the loader is in a reference cycle, such as that of a Trainer
        and a traceback, Python closes the queue to a worker before torch uses it, and torch waits 5 s for each worker.
        """
        for name in ("train", "val"):
            if name in vars(self):  # it has been built
                close_loader(getattr(self, name))


def close_loader(loader: TrainLoader) -> None:
    """End the worker processes of a loader now."""
    if not isinstance(loader, DataLoader):
        loader.close()
        return
    iterator, loader._iterator = loader._iterator, None
    if iterator is not None:
        iterator._shutdown_workers()  # type: ignore[attr-defined]


def make_loaders(
    data: ImageData,
    recipe: Recipe,
    *,
    workers: int,
    device: str = "cpu",
    rank: Rank = ALONE,
    batch_sizes: tuple[int, ...] | None = None,
) -> Loaders:
    """Return the loaders of one training; each yields normalised float32 (N, 3, side, side) and int64 (N,).

    The test split is not used. Each rank gets its share of every training batch and of the images to evaluate. The
    preprocessing, backend and batch size of the recipe must be resolved. `batch_sizes` are the images of each training
    batch on all ranks together; None: those of a model without BatchNorm.
    """
    assert isinstance(recipe.batch_size, int)  # resolved
    cv2.setNumThreads(1)  # a pool of threads does not help for a single image
    balanced, last = isinstance(recipe.class_balance, BalancedSampler), recipe.classifier_retraining.epochs
    sampler = EpochSampler(
        len(data.train),
        recipe.data.epoch_size,
        recipe.seed,
        data.train.labels if balanced or last else None,
        recipe.repeated_augmentation.repeats,
        0 if balanced else recipe.epochs - last,
    )
    if rank.count > 1 and (len(sampler) < 2 * rank.count or len(data.val) < rank.count):
        raise UserError(
            f"data_parallel.devices={rank.count}: {len(sampler)} training images per epoch and {len(data.val)} validation "
            "images are too few: each device needs two and one. Use fewer devices."
        )
    batch_sizes = batch_sizes or list_batch_sizes(len(sampler), recipe.batch_size, rank)
    batches = ShareBatches(sampler, batch_sizes, rank)
    return Loaders(
        partial(_make_train_loader, data.train, recipe, batches, workers, device),
        partial(make_eval_loader, data.val, recipe, workers=workers, device=device, rank=rank),
        batches,
        _list_eval_batches(data.val, recipe, rank),
    )


def _make_train_loader(
    part: ImagePart, recipe: Recipe, batches: ShareBatches, workers: int, device: str
) -> TrainLoader:
    if recipe.augmentation.backend == "dali":
        from training.data.pipelines.dali_loader import DaliLoader

        return DaliLoader(part, recipe, batches, max(1, workers), device)
    if recipe.augmentation.backend == "tensor":
        return build_loader(TensorImages(part, recipe, device), batches, recipe.seed, 0, "cpu")
    images = TrainImages(part, recipe)
    needed = _needed(workers, images.images, recipe.preprocessing)
    return build_loader(images, batches, recipe.seed, needed, device)


def make_eval_loader(
    part: ImagePart, recipe: Recipe, *, workers: int, device: str = "cpu", rank: Rank = ALONE
) -> DataLoader[Batch]:
    """Build a loader of one part, or a rank's share of it, in its order, without augmentation."""
    preprocessing = recipe.evaluation_preprocessing
    pixels = fit_all(part.reduced_to(GAP * resized_side(preprocessing)).images, preprocessing)
    dataset = EvalImages(part, preprocessing, pixels)
    batches = _list_eval_batches(part, recipe, rank)
    needed = min(len(batches), _needed(workers, dataset.images, preprocessing))
    return build_loader(dataset, batches, recipe.seed, needed, device)


def _list_eval_batches(part: ImagePart, recipe: Recipe, rank: Rank) -> list[list[int]]:
    # Each rank gets the same number of batches, because ranks that share a model wait for each other in every batch.
    count = -(-len(part) // (choose_eval_batch(recipe) * rank.count))
    return [batch.tolist() for batch in np.array_split(rank.share(range(len(part))), count)]


def choose_eval_batch(recipe: Recipe) -> int:
    """Return the images per forward pass of an evaluation on one device: as many as in training, or more if they are small.

    An evaluation stores no activations, so it then takes no more memory than the training.
    """
    size = recipe.evaluation_preprocessing.side
    assert isinstance(recipe.batch_size, int)  # resolved
    trained = recipe.batch_size // recipe.data_parallel.devices
    return min(LARGEST_EVAL_BATCH, max(trained, SMALL_BATCH_PIXELS // size**2))


def list_batch_sizes(count: int, batch_size: int, rank: Rank, has_batch_norm: bool = False) -> tuple[int, ...]:
    """Return the sizes of the batches of an epoch with `count` images.

    A last batch is dropped if a rank would get fewer than two images, because BatchNorm needs two. With BatchNorm, the
    last two batches share their images equally if a rank would get fewer than eight in the last: so few change the
    statistics of the whole model to those of a few images, just before it is validated.
    """
    full, rest = divmod(count, batch_size)
    if full and rest < 2 * rank.count:
        return (batch_size,) * full
    if full and has_batch_norm and rest < FEWEST_FOR_STATISTICS * rank.count:
        shared = batch_size + rest
        return (batch_size,) * (full - 1) + (-(-shared // 2), shared // 2)
    return (batch_size,) * full + ((rest,) if rest else ())


def _needed(workers: int, images: np.ndarray | ImageFiles, preprocessing: Preprocessing) -> int:
    """Return the number of workers. Small images in memory need none: preparing them is faster than sending them."""
    return 0 if isinstance(images, np.ndarray) and preprocessing.side <= SMALL_SIDE else workers


def build_loader(
    dataset: Dataset[T], batches: ShareBatches | list[list[int]], seed: int, workers: int, device: str
) -> DataLoader[T]:
    """Build a loader of a data set that collates its batches itself."""
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        worker_init_fn=_limit_threads if workers > 0 else None,
        pin_memory=device == "cuda",
        collate_fn=keep_batch,
        # Without it, the loader uses torch's global generator and changes all later draws.
        generator=torch.Generator().manual_seed(seed),
    )


def _limit_threads(worker: int) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
