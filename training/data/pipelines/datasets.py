"""Data sets that return whole batches: torch's loader calls `__getitems__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from training.contract.specs import Preprocessing
from training.data.files.images import ImagePart
from training.data.pipelines.augmenter import Augmenter
from training.data.pipelines.sampling import Draw
from training.data.preprocessing.transform import fit, fit_all, normalise, resized_side
from training.recipe import Recipe

Batch = tuple[torch.Tensor, torch.Tensor]
T = TypeVar("T")

GAP = 2  # a JPEG is decoded at this multiple of its final size without visible loss (Pillow's `reducing_gap`)


def keep_batch(batch: T) -> T:
    """Return a batch unchanged: the data set has collated it. Workers may have to pickle this function."""
    return batch


class TrainImages(Dataset[Batch]):
    """Augmented images; each draw contains the seed of its augmentation."""

    def __init__(self, part: ImagePart, recipe: Recipe) -> None:
        self.preprocessing = recipe.preprocessing
        self.augmenter = Augmenter(recipe)
        part = part.reduced_to(self.augmenter.needed_side or GAP * resized_side(recipe.preprocessing))
        self.images = part.images if self.augmenter.crops else fit_all(part.images, recipe.preprocessing)
        # Images that are fitted already must not be fitted again, which would crop twice.
        self.fits_each = not self.augmenter.crops and self.images is part.images
        self.labels = torch.from_numpy(part.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, draw: Draw) -> Batch:
        images, labels = self.__getitems__([draw])
        return images[0], labels[0]

    def __getitems__(self, draws: Sequence[Draw]) -> Batch:
        pixels = np.stack([self._augment(*draw) for draw in draws])
        return normalise(pixels, self.preprocessing), self.labels[[index for index, _ in draws]]

    def _augment(self, index: int, seed: int) -> np.ndarray:
        image = self.images[index]
        if self.fits_each:
            image = fit(image, self.preprocessing)
        return self.augmenter(image, seed)


class EvalImages(Dataset[Batch]):
    """Images as for validation, prepared at each access."""

    def __init__(self, part: ImagePart, preprocessing: Preprocessing) -> None:
        self.images = part.reduced_to(GAP * resized_side(preprocessing)).images
        self.preprocessing = preprocessing
        self.labels = torch.from_numpy(part.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        pixels = np.stack([fit(self.images[index], self.preprocessing) for index in indices])
        return normalise(pixels, self.preprocessing), self.labels[list(indices)]


class EvalPixels(EvalImages):
    """Images as for validation, resized once: in memory, or for files in the shared cache."""

    def __init__(self, part: ImagePart, preprocessing: Preprocessing, pixels: np.ndarray) -> None:
        super().__init__(part, preprocessing)
        self.images = pixels

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        chosen = list(indices)
        return normalise(self.images[chosen], self.preprocessing), self.labels[chosen]


class EvalTensor(Dataset[Batch]):
    """Images as for validation, resized and normalised once, for small parts."""

    def __init__(self, part: ImagePart, preprocessing: Preprocessing, pixels: np.ndarray) -> None:
        self.images = normalise(pixels, preprocessing).numpy()
        self.labels = torch.from_numpy(part.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return torch.from_numpy(self.images[index]), self.labels[index]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        chosen = list(indices)
        return torch.from_numpy(self.images[chosen]), self.labels[chosen]
