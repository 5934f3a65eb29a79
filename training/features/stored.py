"""Features on disk: computed once per machine for each frozen part, set of images and preprocessing."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import PIL
import timm
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

from training.data.files.images import ImagePart
from training.data.files.pixel_store import cache_limit, shared_array
from training.data.identity import identify_images
from training.data.pipelines.loaders import TrainLoader, build_loader, close_loader, make_eval_loader
from training.data.pipelines.sampling import Draw, ShareBatches
from training.features.split import Features, NoSplit, Split
from training.recipe import Recipe

FORMAT = 1
_AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}

logger = logging.getLogger(__name__)


class StoredFeatures(Dataset[tuple[Features, torch.Tensor]]):
    """The features of a part, as bytes that all processes of this machine share, with its labels."""

    def __init__(self, rows: np.ndarray, like: torch.Tensor, labels: np.ndarray) -> None:
        self.rows, self.like = rows, like  # uint8 (N, bytes of an image), and the features of one image (1, ...)
        self.labels = torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, draws: Sequence[int | Draw]) -> tuple[Features, torch.Tensor]:
        """Return a batch, in the order of positions, or of draws of the training."""
        positions = [draw if isinstance(draw, int) else draw[0] for draw in draws]
        values = torch.from_numpy(self.rows[positions]).view(self.like.dtype)
        return Features(values.view(-1, *self.like.shape[1:])), self.labels[positions]


@dataclass(frozen=True)
class FeatureMaker:
    """Computes and stores the features of one frozen part, on the device of the training."""

    split: Split
    recipe: Recipe
    device: str
    workers: int
    examples: dict[int, torch.Tensor] = field(default_factory=dict)  # the features of one image, by its side

    def size_of(self, part: ImagePart, recipe: Recipe) -> int:
        """Return the bytes of the features of a part."""
        return len(part) * self._row_bytes(recipe)

    def fits(self, part: ImagePart, recipe: Recipe) -> bool:
        """Return whether the features of a part may be stored: the other half of the limit is for the other part."""
        return self.size_of(part, recipe) <= cache_limit("features") // 2

    def make(self, part: ImagePart, recipe: Recipe) -> StoredFeatures:
        """Return the features of a part, prepared as in an evaluation of `recipe`; computed if they are not stored yet."""

        def fill(rows: np.ndarray) -> None:
            logger.info("Computing the features of %d images once: %d MB in the cache.", len(rows), rows.nbytes >> 20)
            loader, begin = make_eval_loader(part, recipe, workers=self.workers, device=self.device), 0
            try:
                for images, _ in loader:
                    values = self._compute(images)
                    end = begin + len(values)
                    rows[begin:end] = values.contiguous().view(len(values), -1).view(torch.uint8).numpy()
                    begin = end
            finally:
                close_loader(loader)

        shape = (len(part), self._row_bytes(recipe))
        rows = shared_array(self._identify(part, recipe), shape, fill, kind="features")
        return StoredFeatures(rows, self._like(recipe), part.labels)

    def _like(self, recipe: Recipe) -> torch.Tensor:
        side = recipe.evaluation_preprocessing.side
        if side not in self.examples:
            random = torch.get_rng_state()
            self.examples[side] = self._compute(torch.zeros(1, 3, side, side))
            if not torch.equal(torch.get_rng_state(), random):  # a module of the user's own, also in eval mode
                raise NoSplit("the frozen part draws random numbers")
        return self.examples[side]

    def _row_bytes(self, recipe: Recipe) -> int:
        like = self._like(recipe)
        return like.numel() * like.element_size()

    def _compute(self, images: torch.Tensor) -> torch.Tensor:
        dtype = _AUTOCAST.get(self.recipe.precision.mode)
        with torch.autocast(self.device, dtype, enabled=dtype is not None):
            return self.split.compute_features(images.to(self.device)).cpu()

    @cached_property
    def _identity(self) -> bytes:
        """A digest of everything that the features of an image depend on, beside its pixels and its preprocessing."""
        precision = self.recipe.precision
        facts = (
            FORMAT,
            str(self.split.prefix),
            self.recipe.backbone.model_dump(exclude={"weights"}),
            (precision.mode, precision.float32, self.recipe.channels_last.enabled),
            torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            [library.__version__ for library in (torch, torchvision, timm, np, PIL)],
        )
        digest = hashlib.blake2b(repr(facts).encode())
        for name, value in self.split.weights():
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.digest()

    def _identify(self, part: ImagePart, recipe: Recipe) -> str:
        digest = hashlib.blake2b(self._identity, digest_size=16)
        digest.update(repr(recipe.evaluation_preprocessing).encode())
        digest.update(identify_images(part.images))
        return digest.hexdigest()


class SwitchedLoader:
    """Batches of images, or the same batches as features while there are some.

    The first call of `find_images` may prepare them; `batches` are the draws, or the positions, of each batch.
    """

    def __init__(self, find_images: Callable[[], TrainLoader], batches: ShareBatches | list[list[int]]) -> None:
        self.find_images = find_images
        self.features: DataLoader[tuple[Features, torch.Tensor]] | None = None
        self.batch_sampler = batches  # Lightning reads it

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[tuple[torch.Tensor | Features, torch.Tensor]]:
        return iter(self.find_images() if self.features is None else self.features)

    def use(self, stored: StoredFeatures, recipe: Recipe, device: str) -> None:
        self.features = build_loader(stored, self.batch_sampler, recipe.seed, 0, device)
