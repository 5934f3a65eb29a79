"""Loss: what the training minimises in place of the cross-entropy (Lin 2017, Zhang 2018, Menon 2021, Wightman 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.contract.setup import Criterion, TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import torch

PRESENT = 0.2  # a class with a larger share of a mixed image counts as present, as in the recipes of Wightman et al.


class Loss(Technique):
    interactions: ClassVar[str] = (
        "Every loss takes mixed and smoothed targets. generalised learns slowly where the head is new, since most "
        "images contradict it at first: give it epochs, or a small q. class_balance=weights multiplies the loss of an"
        " image by the weight of its class. logit_adjusted is refused beside class_balance, because both correct the "
        "same imbalance; label smoothing is then towards the frequencies to the power of tau, as the uniform distribution "
        "would make the rarest class win. val_loss remains the plain cross-entropy, and so comparable; compare train_loss "
        "only between recipes with the same loss. The best learning rate depends on the loss. With bce the softmax "
        "probabilities are not trained, so val_loss and val_ece get worse: search for val_accuracy or val_macro_f1."
    )

    name: str

    @property
    def is_on(self) -> bool:
        return not isinstance(self, CrossEntropy)

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.shares_loss import SharesLoss

        setup.criterion = SharesLoss(self, setup.class_count, setup.class_weights)

    def targets(self, shares: torch.Tensor) -> torch.Tensor:
        """Return the targets (N, classes) before smoothing, for the shares of the classes in each image (N, classes)."""
        return shares

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each image (N,), for logits and targets (N, classes)."""
        return -(targets * logits.log_softmax(1)).sum(1)


class CrossEntropy(Loss):
    name: Literal["cross_entropy"] = "cross_entropy"


def criterion_of(setup: TrainingSetup) -> Criterion:
    """Return the loss of a training, on smoothed targets if a technique asks for them."""
    from torch import nn

    from training.model.shares_loss import SharesLoss

    criterion: Criterion = setup.criterion or nn.CrossEntropyLoss()
    if setup.criterion is None and setup.class_weights is not None:
        # torch multiplies each term of a smoothed target by the weight of its class: the rare classes, which an image does
        # not have, would then count more than its own.
        criterion = SharesLoss(CrossEntropy(), setup.class_count, setup.class_weights)
    if setup.label_smoothing is not None:
        criterion.label_smoothing = setup.label_smoothing
    return criterion


class BinaryCrossEntropy(Loss):
    """One yes or no for each class, summed over the classes; both classes of a mixed image are yes (Wightman et al. 2021)."""

    name: Literal["bce"] = "bce"

    def targets(self, shares: torch.Tensor) -> torch.Tensor:
        return (shares > PRESENT).to(shares.dtype)

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional as F

        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1)


class Focal(Loss):
    """Less loss for images that are already predicted with confidence (Lin et al. 2017, equation 4)."""

    name: Literal["focal"] = "focal"
    gamma: float = Field(2.0, gt=0, le=10, description="Factor on the loss: (1 - probability)^gamma.", examples=[1.0])

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        log_probabilities = logits.log_softmax(1)
        # Without the limit, a gamma below 1 would give an infinite gradient at a probability of 1.
        rest = (-log_probabilities.expm1()).clamp_min(1e-6)
        return -(targets * rest**self.gamma * log_probabilities).sum(1)


class Poly(Loss):
    """The first term of the cross-entropy's expansion gets more weight (Leng et al. 2022, section 4)."""

    name: Literal["poly"] = "poly"
    epsilon: float = Field(
        1.0, gt=0, le=10, description="The loss gets epsilon · (1 - probability) in addition.", examples=[2.0]
    )

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().losses(logits, targets) + self.epsilon * (1 - (targets * logits.softmax(1)).sum(1))


class Generalised(Loss):
    """For wrong labels: images that contradict their label count less in the gradient (Zhang & Sabuncu 2018, equation 6)."""

    name: Literal["generalised"] = "generalised"
    q: float = Field(
        0.7,
        gt=0,
        le=1,
        description="The loss is (1 - probability^q) / q: near 0 the cross-entropy, with 1 the mean absolute error, which "
        "wrong labels disturb least and which learns slowest.",
        examples=[0.3],
    )

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return -(targets * (self.q * logits.log_softmax(1)).expm1()).sum(1) / self.q


class LogitAdjusted(Loss):
    """For long tails: rare classes get larger margins, by adding tau · log(frequency) in training (Menon et al. 2021)."""

    name: Literal["logit_adjusted"] = "logit_adjusted"
    tau: float = Field(
        1.0,
        gt=0,
        le=10,
        description="Strength; with 1, the loss treats all classes as equally frequent.",
        examples=[2.0],
    )

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        from training.model.shares_loss import SharesLoss

        assert setup.class_images is not None
        counts = torch.tensor(setup.class_images, dtype=torch.float32).clamp_min(1)
        setup.criterion = SharesLoss(self, setup.class_count, None, self.tau * (counts / counts.sum()).log())

    def conflict(self, recipe: RecipeView) -> str | None:
        if not recipe.class_balance.is_on:
            return None
        return (
            f"loss.name=logit_adjusted and class_balance.name={recipe.class_balance.name} would correct the same imbalance "
            "twice: set class_balance={name: none} or another loss."
        )
