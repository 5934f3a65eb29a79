"""The mean of a loss over images whose targets are labels or, after mixing, shares of the classes."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F


class ImageLoss(Protocol):
    """The loss of each image, as `training.techniques.loss.losses.Loss` describes it."""

    def targets(self, shares: torch.Tensor, /) -> torch.Tensor: ...
    def losses(self, logits: torch.Tensor, targets: torch.Tensor, /) -> torch.Tensor: ...


class SharesLoss(nn.Module):
    """Takes logits (N, classes) and labels (N,) or shares (N, classes), as `nn.CrossEntropyLoss` does."""

    class_weights: torch.Tensor | None
    offset: torch.Tensor | None

    def __init__(
        self,
        loss: ImageLoss,
        class_count: int,
        class_weights: torch.Tensor | None = None,
        offset: torch.Tensor | None = None,
    ) -> None:
        """Build the loss.

        Args:
            loss: The loss of each image.
            class_count: The number of classes.
            class_weights: The weight of each class (classes,). The loss of an image is multiplied by that of its own class,
                or by the mean of the weights by its shares; the mean loss is over the number of images.
            offset: Added to the logits of each image (classes,). Smoothing is then towards its softmax, not the uniform
                distribution: else the logits of the class with the lowest offset would have to be the highest.
        """
        super().__init__()
        self.loss, self.class_count = loss, class_count
        self.label_smoothing = 0.0
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.register_buffer("offset", offset, persistent=False)

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        shares = F.one_hot(targets, self.class_count) if targets.dim() == 1 else targets
        shares = shares.to(logits.dtype)
        even = 1 / self.class_count if self.offset is None else self.offset.softmax(0).to(shares.dtype)
        smoothed = self.loss.targets(shares) * (1 - self.label_smoothing) + self.label_smoothing * even
        losses = self.loss.losses(logits if self.offset is None else logits + self.offset, smoothed)
        return (
            losses if self.class_weights is None else losses * (shares @ self.class_weights.to(shares.dtype))
        ).mean()
