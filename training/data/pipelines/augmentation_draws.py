"""What a policy does to each image, drawn for a whole batch at once: SplitMix64 (Steele et al. 2014) from each draw's seed.

The distributions are those of Albumentations; the tensor and the DALI backend share these draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.techniques.data.augmentation import STRENGTHS, CropFlip, SmallImages

RATIO = (3 / 4, 4 / 3)  # of a crop's sides, as in Szegedy et al.
_TRIES = 10


@dataclass(frozen=True)
class Changes:
    """Of a batch of N square images; what is None changes none of them."""

    matrix: np.ndarray | None  # float32 (N, 2, 3): from a pixel (x, y) of the result to one of the image
    moved: np.ndarray | None  # bool (N,): the others have the identity as their matrix
    shift: np.ndarray  # float32 (N, 3): added to each colour, of 255
    gain: np.ndarray  # float32 (N,): times the shifted colours, clipped
    offset: np.ndarray  # float32 (N,): added to that


@dataclass(frozen=True)
class Crops:
    boxes: np.ndarray  # int64 (N, 4): top, left, height, width in pixels
    mirrored: np.ndarray  # bool (N,)


def draw_uniform(seeds: np.ndarray, count: int) -> np.ndarray:
    """Numbers in [0, 1), float64 (N, count), each row from its own seed alone."""
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        state = seeds.astype(np.uint64)[:, None] + step * np.arange(1, count + 1, dtype=np.uint64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)) * 2.0**-53


def draw_changes(policy: SmallImages, seeds: np.ndarray, side: int) -> Changes:
    numbers = draw_uniform(seeds, 12)
    applied = numbers[:, :3] < policy.probability  # each of the three groups by itself
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


def _invert_affine(policy: SmallImages, numbers: np.ndarray, side: int) -> np.ndarray:
    """Undo: enlarge about the centre, turn, shift."""
    # Albumentations shifts by whole pixels, rounded towards none.
    shift = np.trunc((2 * numbers[:, :2] - 1) * policy.translate * side)
    scale = 1 + numbers[:, 2] * policy.scale
    angle = np.deg2rad((2 * numbers[:, 3] - 1) * policy.rotate)
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    linear = np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1)
    centre = (side - 1) / 2
    moved = centre - np.einsum("nij,nj->ni", linear, centre + shift)
    return np.concatenate([linear, moved[:, :, None]], axis=2).astype(np.float32)


def draw_choices(seeds: np.ndarray, rounds: int, kinds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which of so many changes each image gets in each round, how strong, and in which direction: int32 (N, rounds) each."""
    numbers = draw_uniform(seeds, 3 * rounds).reshape(len(seeds), 3, rounds)
    scaled = numbers * np.array([kinds, STRENGTHS, 2])[None, :, None]
    kind, strength, sign = scaled.astype(np.int32).transpose(1, 0, 2)
    return kind, strength, sign


def draw_crops(policy: CropFlip, seeds: np.ndarray, sizes: np.ndarray) -> Crops:
    """Draw a crop of each image; `sizes` is (N, 2), height and width."""
    numbers = draw_uniform(seeds, 3 + 2 * _TRIES)
    height, width = (column[:, None] for column in sizes.T)
    area = height * width * (policy.min_area + (1 - policy.min_area) * numbers[:, 3 : 3 + _TRIES])
    ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** numbers[:, 3 + _TRIES :]
    # The last column is what is taken when no try fits: all that the ratio allows, from the middle.
    heights = np.concatenate([np.rint(np.sqrt(area / ratio)), np.minimum(height, np.rint(width / RATIO[0]))], axis=1)
    widths = np.concatenate([np.rint(np.sqrt(area * ratio)), np.minimum(width, np.rint(height * RATIO[1]))], axis=1)
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    chosen = np.argmax(fits, axis=1)
    rows = np.arange(len(sizes))
    extent = np.stack([heights[rows, chosen], widths[rows, chosen]], axis=1)
    place = np.where((chosen == _TRIES)[:, None], 0.5, numbers[:, :2])
    corner = np.floor(place * (sizes - extent + np.where((chosen == _TRIES)[:, None], 0, 1)))
    return Crops(np.concatenate([corner, extent], axis=1).astype(np.int64), numbers[:, 2] < policy.flip)
