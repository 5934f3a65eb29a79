"""Change a whole batch, with a separate draw for each image: crop, shift, mirror, move, colour and normalise."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from training.contract.specs import Preprocessing
from training.data.pipelines.augmentation_draws import Changes, Geometry
from training.process.upload import upload


def to_float(planes: torch.Tensor) -> torch.Tensor:
    """Turn images (N, 3, height, width) in any layout into contiguous float32."""
    return planes.to(torch.float32, memory_format=torch.contiguous_format)


def place(planes: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Shift images (N, 3, side, side) by whole pixels, and mirror them; pixels from outside are black."""
    if geometry.boxes is not None:
        side, border = planes.shape[-1], int(np.abs(geometry.boxes[:, :2]).max())
        top, left = upload(torch.from_numpy(geometry.boxes[:, :2] + border), planes.device).unbind(1)
        windows = F.pad(planes, (border,) * 4).unfold(2, side, 1).unfold(3, side, 1)  # a view
        planes = windows[torch.arange(len(planes), device=planes.device), :, top, left]
    if geometry.mirrored is None:
        return planes
    mirrored = upload(torch.from_numpy(geometry.mirrored), planes.device)
    return torch.where(mirrored[:, None, None, None], planes.flip(3), planes)


def move(planes: torch.Tensor, changes: Changes, interpolation: str) -> torch.Tensor:
    """Shift, rotate and enlarge the images that have such a change; pixels from outside are black.

    Turns images (N, 3, side, side) on a scale of 255, uint8 or float32, into float32.
    """
    if changes.matrix is None or changes.moved is None or not changes.moved.any():
        return to_float(planes)
    moved, still = (
        upload(torch.from_numpy(np.flatnonzero(rows)), planes.device) for rows in (changes.moved, ~changes.moved)
    )
    grid = upload(_make_grid(changes.matrix[changes.moved], planes.shape[-1]), planes.device)
    images = torch.empty(planes.shape, device=planes.device)
    images[still] = planes[still].float()
    images[moved] = F.grid_sample(planes[moved].float(), grid, mode=interpolation, align_corners=True)
    return images


def _make_grid(matrix: np.ndarray, side: int) -> torch.Tensor:
    """Return the source of each pixel of the result, (N, side, side, 2); -1 and 1 are the centres of the outer pixels.

    A single matrix product for all images is five times faster than `affine_grid`, which computes many small ones.
    """
    theta = matrix.astype(np.float64) * 2 / (side - 1)
    theta[:, :, 2] -= 1
    y, x = np.mgrid[:side, :side].reshape(2, -1)
    grid = theta.reshape(-1, 3).astype(np.float32) @ np.stack([x, y, np.ones_like(x)]).astype(np.float32)
    return torch.from_numpy(grid).view(-1, 2, side, side).permute(0, 2, 3, 1)


def colour(images: torch.Tensor, changes: Changes, preprocessing: Preprocessing) -> torch.Tensor:
    """Shift colours, change contrast and brightness, clipped to 0 to 255 each time, and normalise; all in place."""

    def per_image(values: np.ndarray) -> torch.Tensor:
        return upload(torch.from_numpy(values), images.device)[:, :, None, None]

    images.add_(per_image(changes.shift)).clamp_(0, 255)
    images.mul_(per_image(changes.gain[:, None])).add_(per_image(changes.offset[:, None]))
    return normalise_planes(images, preprocessing)


def normalise_planes(images: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Clip to 0 to 255 and normalise, in place."""
    mean, std = (np.array(values, dtype=np.float64) for values in (preprocessing.mean, preprocessing.std))
    scale, bias = (
        upload(torch.from_numpy(values.astype(np.float32)), images.device)[:, None, None]
        for values in (1 / (255 * std), -mean / std)
    )
    return images.clamp_(0, 255).mul_(scale).add_(bias)


def crop(images: torch.Tensor, geometry: Geometry, sizes: np.ndarray, side: int, interpolation: str) -> torch.Tensor:
    """Crop, resize to `side` and mirror by two batched matrix products: float32 (N, 3, side, side).

    `sizes` (N, 2) holds height and width for which the crops were drawn; the stored images may have another shape.
    """
    assert geometry.boxes is not None
    stored = np.array(images.shape[-2:])
    boxes = (geometry.boxes * np.tile(stored / sizes, 2)).astype(np.float32)
    rows, columns = (
        _resize_matrix(boxes[:, axis], boxes[:, 2 + axis], int(stored[axis]), side, interpolation, images.device)
        for axis in (0, 1)
    )
    if geometry.mirrored is not None:
        mirrored = upload(torch.from_numpy(geometry.mirrored), images.device)
        columns = torch.where(mirrored[:, None, None], columns.flip(1), columns)
    count, _, height, width = images.shape
    narrow = torch.bmm(images.view(count, 3 * height, width), columns.transpose(1, 2)).view(count, 3, height, side)
    return (rows[:, None] @ narrow).clamp_(0, 255)  # bicubic interpolation can leave the range


def _resize_matrix(
    starts: np.ndarray, lengths: np.ndarray, stored: int, side: int, interpolation: str, device: torch.device
) -> torch.Tensor:
    """Return the weight of each stored pixel in each pixel of the result, (N, side, stored), zero outside the crop."""
    first, length = (upload(torch.from_numpy(values), device)[:, None, None] for values in (starts, lengths))
    step = length / side
    last = first + length - 1
    pixel = torch.arange(stored, device=device, dtype=torch.float32)
    left = first + torch.arange(side, device=device, dtype=torch.float32)[None, :, None] * step
    at = left + step / 2 - 0.5
    if interpolation == "nearest":
        weights = (pixel == torch.floor(left + 1e-4)).float()
    elif interpolation == "bilinear":
        # Positions beyond the edge of the crop use its outermost pixel.
        weights = (1 - (torch.minimum(torch.maximum(at, first), last) - pixel).abs()).clamp_min_(0)
    else:
        weights = _cubic(at - pixel) * ((pixel > first - 1) & (pixel < last + 1))
    if interpolation != "nearest" and (lengths > side).any():
        # When shrinking, the weight is the area of each stored pixel that the new pixel covers.
        area = (torch.minimum(left + step, pixel + 1) - torch.maximum(left, pixel)).clamp_min_(0)
        weights = torch.where(length > side, area, weights)
    return weights / weights.sum(dim=2, keepdim=True).clamp_min_(1e-6)


def _cubic(distance: torch.Tensor) -> torch.Tensor:
    """Return the bicubic kernel of OpenCV and torch (Keys 1981, a = -0.75)."""
    x, a = distance.abs(), -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, torch.zeros_like(x)))
