"""Crop, mirror and change images one by one, in the training process or in loader workers."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import cv2
import numpy as np
import torch
from PIL import Image

from training.data.pipelines.augmentation_file import build_pipeline
from training.recipe import Recipe
from training.techniques.data.augmentation import FromFile, SmallImages
from training.techniques.data.one_of_many import OneOfMany
from training.techniques.data.random_crop import ResizedCrop

if TYPE_CHECKING:
    import albumentations as A
    from torchvision.transforms import v2

_FLAGS = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}


class Augmenter:
    """Crop, flip and policy as a function of an image and a seed: the same pair gives the same pixels in every process."""

    def __init__(self, recipe: Recipe) -> None:
        side, policy, crop = recipe.preprocessing.image_size, recipe.augmentation, recipe.random_crop
        assert isinstance(side, int)  # resolved
        self.crops = isinstance(crop, ResizedCrop)  # it accepts images of any size; all others need the model's size
        # Shorter side, in pixels, from which even the smallest crop is not enlarged.
        self.needed_side = crop.needed_side(side) if isinstance(crop, ResizedCrop) else 0
        self.change: v2.Transform | None = None
        if isinstance(policy, OneOfMany):
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
        return image if self.change is None else _change(self.change, image, seed)

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
    """Return the pipelines of Albumentations, one after the other."""
    # Otherwise the import of Albumentations searches the network for a newer version.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    policy, interpolation = recipe.augmentation, _FLAGS[recipe.preprocessing.interpolation]
    transforms = [*recipe.random_crop.transforms(side, interpolation), *recipe.flip.transforms()]
    if isinstance(policy, SmallImages):
        transforms += policy.transforms(interpolation)
    composes: list[A.Compose] = []
    if transforms:
        import albumentations as A

        composes.append(A.Compose(transforms))
    if isinstance(policy, FromFile):
        assert policy.pipeline is not None  # resolved
        composes.append(build_pipeline(policy.pipeline))
    return composes


def _change(change: v2.Transform, image: np.ndarray, seed: int) -> np.ndarray:
    """Apply a torchvision transform, which uses torch's global generator, and restore that generator's state."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        return np.asarray(change(Image.fromarray(image)))
    finally:
        generator.set_state(before)
