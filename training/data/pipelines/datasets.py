"""Images that are loaded, cropped, mirrored and changed one by one, as data sets that return whole batches."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from training.contract.specs import Preprocessing
from training.data.files.images import ImagePart
from training.data.pipelines.sampling import Draw
from training.data.preprocessing.transform import fit, fit_all, normalise, resized_side
from training.recipe import Recipe
from training.techniques.data.random_crop import ResizedCrop

if TYPE_CHECKING:
    import albumentations as A
    from torchvision.transforms import v2

logger = logging.getLogger(__name__)

Batch = tuple[torch.Tensor, torch.Tensor]
T = TypeVar("T")

GAP = 2  # a JPEG is decoded at this multiple of its final size without visible loss (Pillow's `reducing_gap`)
_FLAGS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}


class Augmenter:
    """Crop, flip and policy as a function of an image and a seed: the same pair gives the same pixels in every process."""

    def __init__(self, recipe: Recipe) -> None:
        side, policy, crop = recipe.preprocessing.side, recipe.augmentation, recipe.random_crop
        self.crops = isinstance(crop, ResizedCrop)  # it accepts images of any size; all others need the model's size
        # Shorter side, in pixels, from which even the smallest crop is not enlarged.
        self.needed_side = crop.needed_side(side) if isinstance(crop, ResizedCrop) else 0
        self.policy, self.size, self.has_warned = policy.policy, (side, side), False
        self.interpolation = _FLAGS[recipe.preprocessing.interpolation]
        self.change = policy.build(recipe.preprocessing.interpolation)
        self.composes = _compose(recipe, side)
        # Compose(seed=) gives all transforms generators with the same seed, so that all or none apply. Share one instead.
        self.random, self.generator = random.Random(), np.random.default_rng()
        for compose in self.composes:
            compose.set_random_state(self.generator, self.random)

    def __call__(self, image: np.ndarray, seed: int) -> np.ndarray:
        if self.composes:
            self._seed(seed)
        for compose in self.composes:
            image = compose(image=image)["image"]
        if self.change is not None:
            image = _change(self.change, image, seed)
        return image if image.shape[:2] == self.size else self._restore(image)

    def _restore(self, image: np.ndarray) -> np.ndarray:
        """Give an image the size of the model again: a rare step of a policy may have changed it, which no check has seen."""
        if not self.has_warned:
            self.has_warned = True
            logger.warning(
                "The augmentation policy %s made an image %d×%d, not %d×%d. Such images are resized; better leave out the "
                "step that resizes or crops.",
                *(self.policy, *image.shape[1::-1], *self.size),
            )
        return cv2.resize(image, self.size, interpolation=self.interpolation)

    def _seed(self, seed: int) -> None:
        self.random.seed(seed)
        # Setting the state takes 5 µs; a new generator or Compose.set_random_seed takes several times as long.
        self.generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": self.random.getrandbits(128), "inc": self.random.getrandbits(128) | 1},
            "has_uint32": 0,
            "uinteger": 0,
        }


def _compose(recipe: Recipe, side: int) -> list[A.Compose]:
    # Otherwise the import of Albumentations searches the network for a newer version.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    interpolation = _FLAGS[recipe.preprocessing.interpolation]
    transforms = [
        *recipe.random_crop.transforms(side, interpolation),
        *recipe.flip.transforms(),
        *recipe.augmentation.transforms(interpolation),
    ]
    if not transforms:
        return []
    import albumentations as A

    plain = [transform for transform in transforms if not isinstance(transform, A.Compose)]
    return [*([A.Compose(plain)] if plain else []), *(whole for whole in transforms if isinstance(whole, A.Compose))]


def _change(change: v2.Transform, image: np.ndarray, seed: int) -> np.ndarray:
    """Apply a torchvision transform, which uses torch's global generator, and restore that generator's state."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return np.asarray(change(Image.fromarray(image)))


def keep_batch(batch: T) -> T:
    """Return a batch unchanged: the data set has collated it. Workers may have to pickle this function."""
    return batch


class BatchedImages(Dataset[Batch]):
    """A data set that returns whole batches: torch's loader calls `__getitems__`."""

    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


class TrainImages(BatchedImages):
    """Augmented images; each draw contains the seed of its augmentation."""

    def __init__(self, part: ImagePart, recipe: Recipe) -> None:
        self.preprocessing = recipe.preprocessing
        self.augmenter = Augmenter(recipe)
        part = part.reduced_to(self.augmenter.needed_side or GAP * resized_side(recipe.preprocessing))
        fitted = None if self.augmenter.crops else fit_all(part.images, recipe.preprocessing)
        self.images = part.images if fitted is None else fitted
        self.fits_each = fitted is None and not self.augmenter.crops
        self.labels = torch.from_numpy(part.labels)

    def __getitems__(self, draws: Sequence[Draw]) -> Batch:
        pixels = np.stack([self._augment(*draw) for draw in draws])
        return normalise(pixels, self.preprocessing), self.labels[[index for index, _ in draws]]

    def _augment(self, index: int, seed: int) -> np.ndarray:
        image = self.images[index]
        if self.fits_each:
            image = fit(image, self.preprocessing)
        return self.augmenter(image, seed)


class EvalImages(BatchedImages):
    """Images as for validation: from `pixels`, which are fitted already, or else fitted at each access."""

    def __init__(self, part: ImagePart, preprocessing: Preprocessing, pixels: np.ndarray | None = None) -> None:
        self.images = part.reduced_to(GAP * resized_side(preprocessing)).images if pixels is None else pixels
        # Fitted images must not be fitted again, which would crop twice.
        self.fits_each = pixels is None
        self.preprocessing = preprocessing
        self.labels = torch.from_numpy(part.labels)

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        chosen = list(indices)
        if self.fits_each:
            pixels = np.stack([fit(self.images[index], self.preprocessing) for index in chosen])
        else:
            pixels = self.images[chosen]
        return normalise(pixels, self.preprocessing), self.labels[chosen]
