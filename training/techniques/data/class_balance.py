"""Class balance: rare classes weigh more in the loss, or are fed more often (Cui et al. 2019, section 2)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class NoBalance(Technique):
    name: Literal["none"] = "none"


class ClassWeights(Technique):
    """Weights in the loss by the classes' counts in the training part; the training images' mean weight is 1."""

    interactions: ClassVar[str] = (
        "It is either weights or the sampler: both would correct the same imbalance twice. Weights follow the shares of a "
        "mixed or smoothed target. Judge it by val_balanced_accuracy or val_macro_f1, as val_accuracy rewards frequent "
        "classes. On data with as many images of each class it changes next to nothing."
    )

    name: Literal["weights"] = "weights"
    power: float = Field(0.5, gt=0, le=1, description="Weight ∝ count^-power: 1 makes all classes count the same.")

    @property
    def is_on(self) -> bool:
        return True

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        assert setup.class_images is not None
        counts = torch.tensor(setup.class_images, dtype=torch.float64)
        weights = counts.clamp_min(1) ** -self.power
        setup.class_weights = (weights * counts.sum() / (weights * counts).sum()).float()


class BalancedSampler(Technique):
    """Every class is fed equally often, so images of rare classes come several times an epoch, each changed anew."""

    name: Literal["sampler"] = "sampler"

    @property
    def is_on(self) -> bool:
        return True

    def apply(self, setup: TrainingSetup) -> None:
        """Nothing here: the order of the images is the loaders', see `training.data.sampling`."""


ClassBalance = Annotated[NoBalance | ClassWeights | BalancedSampler, Field(discriminator="name")]
