"""What `auto` in the preprocessing means: the pretrained weights' own input, else what the data asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from training.data.images import ImageData, ImagePart
from training.data.specs import Preprocessing

MEASURED_IMAGES = 10_000
USUAL_SIDE = 224
CROP = 0.875


def resolve_preprocessing(
    preprocessing: Preprocessing, data: ImageData, weights_config: dict[str, Any] | None
) -> Preprocessing:
    """Replace every `auto`. `weights_config` is timm's data config of pretrained weights, None without them.

    Raises:
        UnreadableImage: among the training images that are measured.
    """
    asked = preprocessing.model_dump()
    wanted = {name for name, value in asked.items() if value == "auto"}
    if not wanted:
        return preprocessing
    found = _of_weights(weights_config) if weights_config else _of_data(data, wanted)
    return Preprocessing(**{name: found[name] if name in wanted else value for name, value in asked.items()})


def _of_weights(config: dict[str, Any]) -> dict[str, Any]:
    known = ("nearest", "bilinear", "bicubic")
    return {
        "image_size": int(max(config["input_size"][1:])),
        "crop": float(config.get("crop_pct") or 1.0),
        "interpolation": config["interpolation"] if config.get("interpolation") in known else "bicubic",
        "mean": [float(value) for value in config["mean"]],
        "std": [float(value) for value in config["std"]],
    }


def _of_data(data: ImageData, wanted: set[str]) -> dict[str, Any]:
    side = typical_side(data.train)
    found: dict[str, Any] = {
        "image_size": min(side, USUAL_SIDE),
        "crop": CROP if side >= USUAL_SIDE else 1.0,  # the border of a small image is worth keeping
        "interpolation": "bilinear",
    }
    if wanted & {"mean", "std"}:
        found["mean"], found["std"] = measure_colours(data.train)
    return found


def typical_side(part: ImagePart) -> int:
    assert isinstance(part.images, np.ndarray)
    return min(part.images.shape[1:3])


def measure_colours(part: ImagePart) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each colour in [0, 1], over the pixels of at most 10,000 images."""
    chosen = np.sort(np.random.default_rng(len(part)).permutation(len(part))[:MEASURED_IMAGES])
    counts = np.zeros((3, 256), np.int64)
    for start in range(0, len(chosen), 512):
        images = np.asarray(part.images[chosen[start : start + 512]])
        counts += count_levels(images)
    return summarise(counts)


def count_levels(pixels: np.ndarray) -> np.ndarray:
    """Histogram of each colour, int64 (3, 256): exact, and small enough to add up."""
    return np.stack([np.bincount(pixels[..., colour].ravel(), minlength=256) for colour in range(3)])


def summarise(counts: np.ndarray) -> tuple[list[float], list[float]]:
    levels = np.arange(256) / 255
    mean = counts @ levels / counts.sum(axis=1)
    variance = (counts * (levels[None] - mean[:, None]) ** 2).sum(axis=1) / counts.sum(axis=1)
    std = np.maximum(np.sqrt(variance), 1 / 255)  # images of one flat colour must not divide by zero
    return [round(float(value), 6) for value in mean], [round(float(value), 6) for value in std]
