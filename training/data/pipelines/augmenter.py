"""Apply a policy to images one by one, in the training process or in loader workers."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from training.contract.specs import Preprocessing
from training.data.pipelines.augmentation_file import build_pipeline
from training.techniques.data.augmentation import (
    CropFlip,
    FromFile,
    NoAugmentation,
    Policy,
    RandAugment,
    TrivialAugment,
)

if TYPE_CHECKING:
    import albumentations as A
    from torchvision.transforms import v2


class Augmenter:
    """A policy as a function of an image and a seed: the same pair gives the same pixels in every process."""

    def __init__(self, policy: Policy, preprocessing: Preprocessing) -> None:
        self.crops = isinstance(policy, CropFlip)  # it accepts images of any size; other policies need the model's size
        self.needed_side = 0  # shorter side, in pixels, from which even the smallest crop is not enlarged
        self.compose: A.Compose | None = None
        self.change: v2.Transform | None = None
        if isinstance(policy, NoAugmentation):
            return
        if isinstance(policy, TrivialAugment | RandAugment):
            self.change = policy.build(preprocessing.interpolation)
            return
        os.environ.setdefault(
            "NO_ALBUMENTATIONS_UPDATE", "1"
        )  # otherwise its import searches the network for a newer version
        import albumentations as A
        import cv2

        flags = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
        assert isinstance(preprocessing.image_size, int)  # resolved
        if isinstance(policy, CropFlip):
            self.needed_side = round(preprocessing.image_size / policy.min_area**0.5)
        if isinstance(policy, FromFile):
            assert policy.pipeline is not None  # resolved
            self.compose = build_pipeline(policy.pipeline)
        else:
            self.compose = A.Compose(policy.transforms(preprocessing.image_size, flags[preprocessing.interpolation]))
        # Compose(seed=) gives all transforms generators with the same seed, so that all or none apply. Share one instead.
        self.random, self.generator = random.Random(), np.random.default_rng()
        self.compose.set_random_state(self.generator, self.random)

    def __call__(self, image: np.ndarray, seed: int) -> np.ndarray:
        if self.change is not None:
            return _change(self.change, image, seed)
        if self.compose is None:
            return image
        self.random.seed(seed)
        # Setting the state takes 5 µs; a new generator or Compose.set_random_seed takes several times as long.
        self.generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": self.random.getrandbits(128), "inc": self.random.getrandbits(128) | 1},
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self.compose(image=image)["image"]


def _change(change: v2.Transform, image: np.ndarray, seed: int) -> np.ndarray:
    """Apply a torchvision transform, which uses torch's global generator, and restore that generator's state."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        return np.asarray(change(Image.fromarray(image)))
    finally:
        generator.set_state(before)
