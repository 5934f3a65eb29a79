"""All training images as one uint8 tensor; each batch is augmented as a whole on the training device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch

from training.data.files.decode import read_headers, sample_sizes
from training.data.files.images import ImageFiles, ImagePart
from training.data.pipelines.augmentation_draws import draw_changes, draw_geometry
from training.data.pipelines.datasets import GAP, Batch, BatchedImages
from training.data.pipelines.sampling import Draw
from training.data.pipelines.tensor_ops import colour, crop, move, normalise_planes, place, to_float
from training.data.preprocessing.transform import fit, fit_all, resized_side, squeeze_all
from training.process.upload import upload
from training.recipe import Recipe
from training.techniques.data.augmentation import AffineColour
from training.techniques.data.random_crop import ResizedCrop

ON_DEVICE_SHARE = 0.25  # share of a GPU's memory; larger sets stay in main memory and are copied batch by batch


class TensorImages(BatchedImages):
    """Batches on `device`, float32 and normalised; the changes of an image depend on its draw alone."""

    def __init__(self, part: ImagePart, recipe: Recipe, device: str) -> None:
        pixels, self.sizes = _prepare(part, recipe)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array is read-only, but nothing writes to it
            whole = torch.from_numpy(pixels)
        self.device = torch.device(device)
        if self.device.type == "cuda":
            memory = torch.cuda.get_device_properties(self.device).total_memory
            whole = whole.to(self.device) if whole.nbytes <= ON_DEVICE_SHARE * memory else whole
        self.pixels = whole
        self.labels = torch.from_numpy(part.labels).to(self.device)
        self.recipe = recipe

    def __getitems__(self, draws: Sequence[Draw]) -> Batch:
        positions = torch.tensor([position for position, _ in draws])
        seeds = np.array([seed for _, seed in draws], dtype=np.uint64)
        # 40 times faster than [positions].
        rows = self.pixels.view(len(self), -1).index_select(0, upload(positions, self.pixels.device))
        pixels = upload(rows.view(-1, *self.pixels.shape[1:]), self.device)
        return self._augment(pixels, seeds, positions.numpy()), self.labels[upload(positions, self.device)]

    def _augment(self, pixels: torch.Tensor, seeds: np.ndarray, positions: np.ndarray) -> torch.Tensor:
        policy, preprocessing = self.recipe.augmentation, self.recipe.preprocessing
        side, interpolation = preprocessing.side, preprocessing.interpolation
        sizes = np.broadcast_to(self.sizes, (len(self), 2))[positions]
        geometry = draw_geometry(self.recipe, seeds, sizes)
        images = pixels.permute(0, 3, 1, 2)  # a view
        if isinstance(self.recipe.random_crop, ResizedCrop):
            images = crop(to_float(images), geometry, sizes, side, interpolation)
        else:
            images = place(images, geometry)
        if isinstance(policy, AffineColour):
            changes = draw_changes(policy, seeds, side)
            return colour(move(images, changes, interpolation), changes, preprocessing)
        return normalise_planes(to_float(images), preprocessing)


def stored_side(recipe: Recipe, part: ImagePart) -> int:
    """Return the side, in pixels, of the stored images: the model's, or for crops what the smallest crop needs."""
    side = recipe.preprocessing.side
    if not isinstance(recipe.random_crop, ResizedCrop):
        return side
    if isinstance(part.images, ImageFiles):
        usual = int(np.median(sample_sizes(part.images.paths).max(axis=1)))
        return min(recipe.random_crop.needed_side(side), max(side, usual))
    return max(part.images.shape[1:3])


def _prepare(part: ImagePart, recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels to store, uint8 (N, height, width, 3), and height and width of the original images."""
    preprocessing = recipe.preprocessing
    if isinstance(recipe.random_crop, ResizedCrop):
        if not isinstance(part.images, ImageFiles):
            return part.images, np.array(part.images.shape[1:3])
        side = stored_side(recipe, part)
        sizes = read_headers(part.images.paths)[:, :2]
        return squeeze_all(ImageFiles(part.images.paths, side), side, preprocessing), sizes
    images = part.reduced_to(GAP * resized_side(preprocessing)).images
    pixels = fit_all(images, preprocessing)
    if pixels is None:
        # The user has set this backend although the pixels exceed the shared cache: this process gets its own copy.
        pixels = np.stack([fit(image, preprocessing) for image in images])
    return pixels, np.array(pixels.shape[1:3])
