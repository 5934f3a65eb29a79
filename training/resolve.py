"""What `auto` stands for here, found before anything trains; imports no more than that takes."""

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
    """Replace every `auto` that can be told without training by what it stands for with this data on this device.

    Raises:
        UserError: an unknown backbone, one without pretrained weights, a policy's file that cannot be used, or what cannot
            be found on this device.
    """
    if recipe.batch_size == "auto" and device == "cpu":
        raise UserError(
            "batch_size=auto is found by filling the memory of a GPU, and there is none here: give a number."
        )
    check_backbone(recipe.backbone)
    resolved = resolve_preprocessing(recipe.preprocessing, data, pretrained_config(recipe.backbone))
    whole = resolve_pipeline(recipe.model_copy(update={"preprocessing": resolved}))
    return resolve_backend(whole, data, device)
