"""Class balance: give rare classes more weight in the loss, or load them more often (Cui et al. 2019, section 2)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class Balance(Technique):
    name: str

    @property
    def is_on(self) -> bool:
        return not isinstance(self, NoBalance)


class NoBalance(Balance):
    name: Literal["none"] = "none"


class ClassWeights(Balance):
    """Weights in the loss that depend on the training images of each class; their mean over all training images is 1."""

    interactions: ClassVar[str] = (
        "Either weights or the sampler can be on: both would correct the same imbalance twice. The loss of an "
        "image is multiplied by the weight of its class, of a mixed image by the mean of the weights by its shares; smoothing "
        "does not change the weight. Use val_balanced_accuracy or val_macro_f1 as the metric, because val_accuracy favours "
        "frequent classes. It has almost no effect on data with the same number of images in each class."
    )

    name: Literal["weights"] = "weights"
    power: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Weight ∝ count^-power; with 1, all classes have the same total weight.",
        examples=[1.0],
    )

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        assert setup.class_images is not None
        counts = torch.tensor(setup.class_images, dtype=torch.float64)
        weights = counts.clamp_min(1) ** -self.power
        setup.class_weights = (weights * counts.sum() / (weights * counts).sum()).float()


class BalancedSampler(Balance):
    """Every class is loaded equally often: images of rare classes occur several times per epoch, augmented each time."""

    name: Literal["sampler"] = "sampler"

    def apply(self, setup: TrainingSetup) -> None:
        """Do nothing: the loaders set the order of the images, see `training.data.pipelines.sampling`."""


ClassBalance = Annotated[NoBalance | ClassWeights | BalancedSampler, Field(discriminator="name")]
