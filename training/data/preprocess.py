"""From an image of any size to the model's input, as timm's evaluation transform does it: resize, centre crop, normalise."""

from __future__ import annotations

import math

import numpy as np
import torch
from PIL import Image

from training.data.specs import Preprocessing

_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def fit(image: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Resize until the shorter side is the input's over `crop`, keep the centre: uint8 (side, side, 3)."""
    if is_fitting(image, preprocessing):
        return image
    side, crop = preprocessing.image_size, preprocessing.crop
    assert isinstance(side, int)
    assert isinstance(crop, float)
    shorter = math.floor(side / crop)
    height, width = image.shape[:2]
    factor = shorter / min(height, width)
    size = (max(shorter, int(width * factor)), max(shorter, int(height * factor)))
    # Pillow's resize smooths when it shrinks, OpenCV's would leave aliases.
    resized = Image.fromarray(image).resize(size, _RESAMPLING[preprocessing.interpolation])
    left, top = round((size[0] - side) / 2), round((size[1] - side) / 2)
    return np.asarray(resized.crop((left, top, left + side, top + side)))


def is_fitting(image: np.ndarray, preprocessing: Preprocessing) -> bool:
    side = preprocessing.image_size
    return image.shape[:2] == (side, side) and preprocessing.crop == 1.0


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> torch.Tensor:
    """uint8 (N, side, side, 3) to float32 (N, 3, side, side) of mean 0 and deviation 1 over the data."""
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    mean = torch.tensor(preprocessing.mean).view(1, 3, 1, 1)
    std = torch.tensor(preprocessing.std).view(1, 3, 1, 1)
    return images.sub_(mean * 255).div_(std * 255)
