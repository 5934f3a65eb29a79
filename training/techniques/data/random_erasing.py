"""Random erasing: fill a rectangle of a training image with the mean colour (Zhong et al. 2020, algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import torch


MAX_AREA = 0.33


class RandomErasing(Technique):
    """It changes normalised batches on the training device, so it is the same with each policy and backend."""

    interactions: ClassVar[str] = (
        "It comes after the augmentation policy and before mixing; with cutmix or fmix an image loses pixels twice. If the "
        "class of an image shows in one small place, erasing makes the label wrong: lower max_area."
    )
    examples: ClassVar[Examples] = ({"random_erasing": {"probability": 0.5}},)

    probability: float = Field(0.0, ge=0, le=1, description="Probability that a rectangle of an image is erased.")
    max_area: float = Field(
        MAX_AREA, gt=0.02, le=1, description="Largest rectangle, as a share of the image's area.", examples=[0.1]
    )

    def apply(self, setup: TrainingSetup) -> None:
        from timm.data.random_erasing import RandomErasing as Eraser

        erase = Eraser(self.probability, max_area=self.max_area, device=setup.device)

        def transform(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return erase(images.clone()), labels  # the eraser changes its input

        setup.batch_transforms.append(transform)

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.probability == 0 and self.max_area != MAX_AREA:
            return (
                f"random_erasing.max_area={self.max_area:g} does nothing while random_erasing.probability is 0: set a "
                "probability."
            )
        return None
