"""Replace `auto` in the preprocessing by the values of the pretrained weights, or by values that fit the data."""

from __future__ import annotations

import numpy as np

from training.contract.specs import InputConfig, Preprocessing
from training.data.files.cache import cached, key_of_files
from training.data.files.decode import read_image, read_side, sample_sizes
from training.data.files.images import ImageData, ImagePart
from training.process.resources import map_in_threads

MEASURED_IMAGES = 10_000
USUAL_SIDE = 224
CROP = 0.875


def resolve_preprocessing(
    preprocessing: Preprocessing, data: ImageData, weights_config: InputConfig | None
) -> Preprocessing:
    """Replace every `auto`. `weights_config` is the input of the pretrained weights, None without such weights."""
    values = preprocessing.model_dump()
    missing = {name for name, value in values.items() if value == "auto"}
    if not missing:
        return preprocessing
    suggested = _read_weights_input(weights_config) if weights_config else _choose_by_data(data, missing)
    resolved = Preprocessing.model_validate(values | {name: suggested[name] for name in missing})
    if "crop" in missing and usual_side(data.train) < max(USUAL_SIDE, resolved.side / float(resolved.crop)):
        # The share is meant for photographs, whose border matters little. Small images are filled by their object, and a
        # crop would enlarge them only to cut this away.
        return resolved.model_copy(update={"crop": 1.0})
    return resolved


def usual_side(part: ImagePart) -> int:
    """Return the median of the shorter sides, in pixels, of up to a hundred images."""
    if isinstance(part.images, np.ndarray):
        return min(part.images.shape[1:3])
    return int(np.median(sample_sizes(part.images.paths).min(axis=1)))


def _read_weights_input(config: InputConfig) -> dict[str, object]:
    known = ("nearest", "bilinear", "bicubic")
    return {
        "image_size": int(max(config["input_size"][1:])),
        "crop": float(config.get("crop_pct") or 1.0),
        "crop_mode": mode if (mode := config.get("crop_mode")) in ("squash", "border") else "center",
        "interpolation": config["interpolation"] if config.get("interpolation") in known else "bicubic",
        "mean": [float(value) for value in config["mean"]],
        "std": [float(value) for value in config["std"]],
    }


def _choose_by_data(data: ImageData, missing: set[str]) -> dict[str, object]:
    chosen: dict[str, object] = {"interpolation": "bilinear", "crop": CROP, "crop_mode": "center"}
    if missing - chosen.keys():
        side, chosen["mean"], chosen["std"] = measure(data.train)
        chosen["image_size"] = max(min(side, USUAL_SIDE), 8)
    return chosen


def measure(part: ImagePart) -> tuple[int, list[float], list[float]]:
    """Return the typical shorter side of the images in pixels, and the mean and deviation of each colour in [0, 1].

    At most 10,000 images are measured. All of them have the same weight, whatever their size. Large JPEGs are read in a
    reduced size, which keeps the colours.
    """
    chosen = np.sort(np.random.default_rng(len(part)).permutation(len(part))[:MEASURED_IMAGES])
    if isinstance(part.images, np.ndarray):
        batches = (chosen[start : start + 512] for start in range(0, len(chosen), 512))
        counts = sum((count_levels(part.images[batch]) for batch in batches), np.zeros((3, 256), np.int64))
        return min(part.images.shape[1:3]), *summarise(counts)
    paths = [part.images.paths[index] for index in chosen]
    key = key_of_files(paths, "colours", 3)
    side, mean, std = cached("colours", key, lambda: _measure_files(paths))
    return side, mean, std


def _measure_files(paths: list[str]) -> tuple[int, list[float], list[float]]:
    def measure_file(path: str) -> tuple[int, np.ndarray]:
        return read_side(path), count_levels(read_image(path, reduce_to=USUAL_SIDE))

    sides, counts = zip(*map_in_threads(measure_file, paths), strict=True)
    return int(np.median(sides)), *summarise(sum(levels / levels[0].sum() for levels in counts))


def count_levels(pixels: np.ndarray) -> np.ndarray:
    """Return the histogram of each colour, int64 (3, 256), for pixels uint8 (…, 3)."""
    return np.stack([np.bincount(pixels[..., colour].ravel(), minlength=256) for colour in range(3)])


def summarise(counts: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the mean and deviation of each colour in [0, 1] from histograms (3, 256) of counts or shares."""
    levels = np.arange(256) / 255
    mean = counts @ levels / counts.sum(axis=1)
    variance = (counts * (levels[None] - mean[:, None]) ** 2).sum(axis=1) / counts.sum(axis=1)
    std = np.maximum(np.sqrt(variance), 1 / 255)  # avoids a division by zero for images of a single colour
    return [round(float(value), 6) for value in mean], [round(float(value), 6) for value in std]
