"""Repeated augmentation: a batch has several differently augmented copies of each image (Hoffer et al. 2020, section 3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples, Part
from training.contract.view import RecipeView


class RepeatedAugmentation(Part):
    interactions: ClassVar[str] = (
        "It needs random_crop, flip, a policy of augmentation or random_erasing. An epoch has as many images as without it, so "
        "it shows fewer different ones: it suits long trainings with strong augmentation and large batches, and costs accuracy "
        "in short ones (Touvron et al. 2022 train for hundreds of epochs with 3 copies). Each batch has fewer different "
        "images, so BatchNorm and mixing see less."
    )
    examples: ClassVar[Examples] = ({"repeated_augmentation": {"repeats": 3}, "flip": {"probability": 0.5}},)

    repeats: int = Field(1, ge=1, le=64, description="Copies of each image, one after the other; 1: off.")

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.repeats == 1:
            return None
        field = f"repeated_augmentation.repeats={self.repeats}"
        is_random = recipe.random_crop.name != "none" or recipe.flip.probability > 0
        if not is_random and recipe.augmentation.policy == "none" and not recipe.random_erasing.is_on:
            return f"{field} shows equal copies: set random_crop, flip, augmentation or random_erasing, or repeats=1."
        if recipe.batch_size != "auto" and recipe.batch_size < 2 * self.repeats:
            return f"{field} needs batches of two images and their copies: raise batch_size={recipe.batch_size}, or lower it."
        return None
