"""Progressive resizing: begin with small images, which are faster, and grow to the full size (Tan & Le 2021, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    from torch import nn

GRID = 8  # sides are multiples of it, in pixels, or of the size of a transformer's patches
GRIDS = (GRID, 14, 16, 32)  # one of which a model has
GROWTH = 0.7


class ProgressiveResizing(Technique):
    """Batches are resized on the training device, so loading takes as long as before."""

    interactions: ClassVar[str] = (
        "Validation uses the full size, so the first epochs, and the first rungs, score lower than without it. The time of a "
        "step shrinks with the area of the images; compare at equal seconds. It follows random_crop and augmentation, and "
        "comes before random_erasing and mixing. compilation compiles anew for new sizes. Backbones with a fixed input "
        "size, such as most transformers, are refused."
    )
    examples: ClassVar[Examples] = (
        {"progressive_resizing": {"start": 0.5}},
        {"progressive_resizing": {"start": 0.5, "growth": 0.4}},
    )

    start: float = Field(1.0, ge=0.25, le=1, description="Side in the first epoch, divided by the full side.")
    growth: float = Field(
        GROWTH, gt=0, le=1, description="Share of the epochs in which the side grows; then, and at last, it is full."
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.resizing import BatchResizing
        from training.model.stages import refuse_size

        grid, full = find_grid(setup.model), setup.image_size
        for side in range(self.side_in(0, 2, full, grid), full, grid):
            refuse_size(setup.model, side, f"progressive_resizing.start={self.start:g}")
        resizing = BatchResizing(partial(self.side_in, grid=grid), full)
        setup.callbacks.append(resizing)
        setup.batch_transforms.append(resizing.resize)

    def side_in(self, epoch: int, epochs: int, full: int, grid: int = GRID) -> int:
        """Return the side of the training images after `epoch` completed epochs, a multiple of `grid` or the full side."""
        length = self.length(epochs)
        if epoch >= length:
            return full
        side = full * (self.start + (1 - self.start) * epoch / length)
        return min(full, max(grid, grid * round(side / grid)))

    def length(self, epochs: int) -> float:
        """Return the epochs with small images: the first one if any, and all but the last one at most."""
        return min(max(1, self.growth * epochs), epochs - 1)

    def as_trained(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Self:
        if not self.is_on:
            return self
        epochs, full = recipe.epochs, recipe.preprocessing.image_size
        update = {"growth": self.length(epochs) / epochs}
        if isinstance(full, int):  # the mean of the sides grows with the start wherever a side does
            update["start"] = fmean(self.side_in(e, epochs, full, grid) for grid in GRIDS for e in range(epochs)) / full
        return self.model_copy(update=update)

    def conflict(self, recipe: RecipeView) -> str | None:
        if not self.is_on:
            return None
        if self.start == 1:
            return f"progressive_resizing.growth={self.growth:g} does nothing while start is 1.0: set a start."
        if recipe.batch_size == 1:
            return (
                f"progressive_resizing.start={self.start:g} with batch_size=1: BatchNorm may see one value per channel of a "
                "small image. Set batch_size=2 or more, with accumulation.batches for larger steps."
            )
        return None


def find_grid(model: nn.Module) -> int:
    """Return the step between sides: the smallest multiple of the model's patches that has 8 pixels or more."""
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", 1)
    patch = max(patch) if isinstance(patch, tuple | list) else int(patch)
    return patch * -(-GRID // patch)
