"""Replace `auto` in a recipe before training. This module imports only what that needs."""

from __future__ import annotations

from training.data.files.images import ImageData
from training.data.pipelines.augmentation_file import resolve_pipeline
from training.data.pipelines.backends import resolve_backend
from training.data.preprocessing.defaults import resolve_preprocessing
from training.errors import UserError
from training.model.backbones import check_backbone
from training.model.weights import pretrained_config
from training.recipe import Recipe


def resolve_recipe(recipe: Recipe, data: ImageData, device: str) -> Recipe:
    """Replace every `auto` whose value follows from this data and this device without training.

    Raises:
        UserError: the backbone is unknown or has no pretrained weights, the augmentation file cannot be used, or
            `batch_size=auto` is set on a CPU.
    """
    if recipe.batch_size == "auto" and device == "cpu":
        raise UserError(
            "batch_size=auto is found by filling the memory of a GPU, and this machine has none: give a number."
        )
    check_backbone(recipe.backbone)
    resolved = resolve_preprocessing(recipe.preprocessing, data, pretrained_config(recipe.backbone))
    whole = resolve_pipeline(recipe.model_copy(update={"preprocessing": resolved}))
    return resolve_backend(whole, data, device)
