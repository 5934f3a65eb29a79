"""Gradient accumulation: one optimizer step for the images of several forward passes (Ott et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import Field

from training.contract.part import MOST, Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    from training.distributed.rank import Rank


Change = Annotated[list[Annotated[int, Field(ge=0, le=MOST)]], Field(min_length=2, max_length=2)]


class Accumulation(Technique):
    interactions: ClassVar[str] = (
        "The effective batch is batch_size × batches, so the best learning rate moves with it; BatchNorm still sees "
        "batch_size images at a time. There are fewer optimizer steps, and so fewer steps for schedules and averages. A "
        "schedule that raises batches late has the effect of a falling learning rate (Smith et al. 2018). A step takes one "
        "epoch at most; of recipes that so become the same, a search trains one."
    )
    examples: ClassVar[Examples] = ({"accumulation": {"batches": 2}},)

    batches: int = Field(1, ge=1, le=MOST, description="Forward passes per optimizer step.")
    schedule: list[Change] = Field(
        [],
        description="Replaces batches: [[3, 2], [6, 4]] means 1 at first, 2 after 3 epochs and 4 after 6.",
        examples=[[[1, 2]]],
    )

    def apply(self, setup: TrainingSetup) -> None:
        setup.batches_per_step = self.batches_in

    def batches_in(self, epoch: int) -> int:
        """Return the forward passes per optimizer step after this many completed epochs."""
        return [self.batches, *(batches for start, batches in self.schedule if start <= epoch)][-1]

    def as_trained(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Self:
        # A step of a whole epoch is the same with any number of batches that is large enough.
        each = [[epoch, MOST if steps == 1 else self.batches_in(epoch)] for epoch, steps in enumerate(epoch_steps)]
        return self.model_copy(update={"batches": 1, "schedule": each})

    def conflict(self, recipe: RecipeView) -> str | None:
        if not self.schedule:
            return None
        field = f"accumulation.schedule={self.schedule}"
        starts, batches = zip(*self.schedule, strict=True)
        if self.batches != 1:
            return f"accumulation.batches={self.batches} and {field} set the same thing: leave one out."
        if min(batches) < 1:
            return f"{field}: a step takes at least 1 forward pass. Give [epoch, batches] with batches of 1 or more."
        if list(starts) != sorted(set(starts)) or starts[-1] >= recipe.epochs:
            return f"{field}: give its epochs in rising order, all below epochs={recipe.epochs}."
        if starts == (0,):
            return f"{field} never changes: write accumulation.batches={batches[0]}."
        if any(now == before for now, before in pairwise((1, *batches))):
            return f"{field}: an entry does not change the number of batches, which is 1 at first. Leave it out."
        return None


def weigh_batches(batch_sizes: tuple[int, ...], batches: int, rank: Rank) -> tuple[float, ...]:
    """Return a weight for the loss of each batch of a rank, with which each optimizer step is the mean over its images.

    Lightning divides each loss by `batches`, the forward passes per optimizer step, in the last, incomplete group too,
    which would shrink that step. It also takes the mean over the ranks, even if their shares of a batch differ in size.
    `batch_sizes` are the images of each batch of an epoch, on all ranks together.
    """
    weights: list[float] = []
    for start in range(0, len(batch_sizes), batches):
        group = batch_sizes[start : start + batches]
        weights += [len(rank.share(range(size))) * rank.count * batches / sum(group) for size in group]
    return tuple(weights)
