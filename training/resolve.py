"""Replace `auto` in a recipe before training. This module imports only what that needs."""

from __future__ import annotations

import logging

import numpy as np

from training.data.files.images import ImageData, ImageFiles
from training.data.pipelines.tensor_images import stored_side
from training.data.preprocessing.defaults import resolve_preprocessing
from training.data.preprocessing.transform import fits, is_fitting
from training.errors import UserError
from training.model.backbones import check_backbone
from training.model.weights import pretrained_config
from training.process.optional import is_installed
from training.recipe import Recipe
from training.techniques.data.random_crop import ResizedCrop

SMALL_SIDE = 64  # on a CPU, crops with a larger side are faster one by one
MOSTLY = 0.9  # share of JPEG files above which DALI is chosen

logger = logging.getLogger(__name__)


def resolve_recipe(recipe: Recipe, data: ImageData, device: str) -> Recipe:
    """Replace every `auto` whose value follows from this data and this device without training."""
    if recipe.batch_size == "auto" and device == "cpu":
        raise UserError(
            "batch_size=auto is found by filling the memory of a GPU, and this machine has none: give a number."
        )
    check_backbone(recipe.backbone)
    resolved = resolve_preprocessing(recipe.preprocessing, data, pretrained_config(recipe.backbone))
    changes = {"preprocessing": resolved, "augmentation": recipe.augmentation.resolve(resolved.side)}
    return resolve_backend(recipe.model_copy(update=changes), data, device)


def resolve_backend(recipe: Recipe, data: ImageData, device: str) -> Recipe:
    """Replace `augmentation.backend=auto`, and log the choice with its reason. The preprocessing must be resolved."""
    if recipe.augmentation.backend != "auto":
        return recipe
    backend, reason = _choose(recipe, data, device)
    logger.info("augmentation.backend=%s: %s.", backend, reason)
    return with_backend(recipe, backend)


def with_backend(recipe: Recipe, backend: str) -> Recipe:
    return recipe.model_copy(update={"augmentation": recipe.augmentation.model_copy(update={"backend": backend})})


def _choose(recipe: Recipe, data: ImageData, device: str) -> tuple[str, str]:
    images, side = data.train.images, recipe.preprocessing.side
    crops = isinstance(recipe.random_crop, ResizedCrop)
    kept = stored_side(recipe, data.train)
    size = len(images) * kept * kept * 3
    as_they_are = isinstance(images, np.ndarray) and (crops or is_fitting(images[0], recipe.preprocessing))
    if "tensor" not in recipe.augmentation.backends:
        return "albumentations", "the policy changes images one by one"
    if crops and side > SMALL_SIDE and device == "cpu":
        return "albumentations", "on a CPU, large crops are faster one by one than as a batch"
    if as_they_are or fits(size):
        return "tensor", f"{len(images)} images of {kept}×{kept} pixels take {size / 2**20:.0f} MB decoded"
    memory = f"{size / 2**30:.0f} GB"
    paths = images.paths if isinstance(images, ImageFiles) and device == "cuda" else []
    jpegs = sum(path.lower().endswith((".jpg", ".jpeg")) for path in paths)
    if jpegs > MOSTLY * len(images) and is_installed("nvidia.dali"):
        return "dali", f"{memory} of decoded JPEG files are too much to keep; the GPU decodes them each time"
    return "albumentations", f"{memory} of decoded images are too much to keep"
