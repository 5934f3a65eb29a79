"""Draw crops, flips and changes for a whole batch: SplitMix64 (Steele et al. 2014) from the seed of each image.

The distributions are those of Albumentations. The tensor and the DALI backend use these draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.recipe import Recipe
from training.techniques.data.augmentation import AffineColour
from training.techniques.data.random_crop import PaddedCrop, ResizedCrop
from training.techniques.data.torchvision_policies import STRENGTHS

RATIO = (3 / 4, 4 / 3)  # bounds of a crop's aspect ratio, as in Szegedy et al.
_TRIES = 10
_GEOMETRY = np.uint64(0xD1B54A32D192ED03)  # separates the draws of crop and flip from those of the policy


@dataclass(frozen=True)
class Changes:
    """The changes of a batch of N square images; a field that is None changes none of them."""

    matrix: np.ndarray | None  # float32 (N, 2, 3): maps a pixel (x, y) of the result to a position in the image
    moved: np.ndarray | None  # bool (N,): the matrix of the other images is the identity
    shift: np.ndarray  # float32 (N, 3): added to each colour, on a scale of 255
    gain: np.ndarray  # float32 (N,): multiplies the shifted and clipped colours
    offset: np.ndarray  # float32 (N,): added afterwards


@dataclass(frozen=True)
class Geometry:
    """The crop and the flip of each image of a batch; a field that is None changes none of them."""

    boxes: np.ndarray | None  # int64 (N, 4): top, left, height, width in pixels; outside of the image is black
    mirrored: np.ndarray | None  # bool (N,)


def draw_uniform(seeds: np.ndarray, count: int) -> np.ndarray:
    """Draw numbers in [0, 1), float64 (N, count); each row depends on its seed alone. `seeds` is uint64 (N,)."""
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        state = seeds.astype(np.uint64)[:, None] + step * np.arange(1, count + 1, dtype=np.uint64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)) * 2.0**-53


def draw_changes(policy: AffineColour, seeds: np.ndarray, side: int) -> Changes:
    """Draw the changes of images of side × side pixels, one for each of `seeds` (N,)."""
    numbers = draw_uniform(seeds, 12)
    applied = numbers[:, :3] < policy.probability  # the three groups are independent
    spread = 2 * numbers - 1
    shift = np.where(applied[:, 1:2], spread[:, 7:10] * policy.rgb_shift, 0.0)
    gain = np.where(applied[:, 2], 1 + spread[:, 10] * policy.contrast, 1.0)
    offset = np.where(applied[:, 2], spread[:, 11] * policy.brightness * 255, 0.0)
    matrix, moved = None, None
    if policy.translate or policy.scale or policy.rotate:
        moved = applied[:, 0]
        matrix = _invert_affine(policy, numbers[:, 3:7], side)
        matrix[~moved] = np.eye(2, 3)
    return Changes(matrix, moved, *(values.astype(np.float32) for values in (shift, gain, offset)))


def _invert_affine(policy: AffineColour, numbers: np.ndarray, side: int) -> np.ndarray:
    # Albumentations shifts by whole pixels, rounded towards zero.
    shift = np.trunc((2 * numbers[:, :2] - 1) * policy.translate * side)
    scale = 1 + numbers[:, 2] * policy.scale
    angle = np.deg2rad((2 * numbers[:, 3] - 1) * policy.rotate)
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    linear = np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1)
    centre = (side - 1) / 2
    moved = centre - np.einsum("nij,nj->ni", linear, centre + shift)
    return np.concatenate([linear, moved[:, :, None]], axis=2).astype(np.float32)


def draw_choices(seeds: np.ndarray, rounds: int, kinds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw the kind, the strength and the direction of the change of each image in each round: int32 (N, rounds) each."""
    numbers = draw_uniform(seeds, 3 * rounds).reshape(len(seeds), 3, rounds)
    scaled = numbers * np.array([kinds, STRENGTHS, 2])[None, :, None]
    kind, strength, sign = scaled.astype(np.int32).transpose(1, 0, 2)
    return kind, strength, sign


def draw_geometry(recipe: Recipe, seeds: np.ndarray, sizes: np.ndarray) -> Geometry:
    """Draw the crop and the flip of each image of a resolved recipe, from one seed each, uint64 (N,).

    `sizes` (N, 2) holds height and width of the images that are cropped, in pixels.
    """
    numbers, crop = draw_uniform(seeds ^ _GEOMETRY, 3 + 2 * _TRIES), recipe.random_crop
    mirrored = numbers[:, 2] < recipe.flip.probability if recipe.flip.probability else None
    if isinstance(crop, ResizedCrop):
        return Geometry(_draw_boxes(crop.min_area, numbers, sizes), mirrored)
    if isinstance(crop, PaddedCrop):
        side = recipe.preprocessing.side
        border = crop.border(side)
        corner = np.floor(numbers[:, :2] * (2 * border + 1)) - border
        return Geometry(np.concatenate([corner, np.full_like(corner, side)], axis=1).astype(np.int64), mirrored)
    return Geometry(None, mirrored)


def _draw_boxes(min_area: float, numbers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return top, left, height and width of resized crops, int64 (N, 4)."""
    height, width = (column[:, None] for column in sizes.T)
    area = height * width * (min_area + (1 - min_area) * numbers[:, 3 : 3 + _TRIES])
    ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** numbers[:, 3 + _TRIES :]
    # The last column is used if no try fits: the largest crop that the ratio allows, from the middle.
    heights = np.concatenate([np.rint(np.sqrt(area / ratio)), np.minimum(height, np.rint(width / RATIO[0]))], axis=1)
    widths = np.concatenate([np.rint(np.sqrt(area * ratio)), np.minimum(width, np.rint(height * RATIO[1]))], axis=1)
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    chosen = np.argmax(fits, axis=1)
    rows = np.arange(len(sizes))
    extent = np.stack([heights[rows, chosen], widths[rows, chosen]], axis=1)
    place = np.where((chosen == _TRIES)[:, None], 0.5, numbers[:, :2])
    corner = np.floor(place * (sizes - extent + np.where((chosen == _TRIES)[:, None], 0, 1)))
    return np.concatenate([corner, extent], axis=1).astype(np.int64)
