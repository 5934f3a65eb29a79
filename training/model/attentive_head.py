"""A head that pools the positions of a backbone's output by attention."""

from __future__ import annotations

import torch
from timm.layers import AttentionPoolLatent, LayerNorm
from torch import nn


class AttentiveHead(nn.Module):
    """timm's attention pooling, then a linear layer.

    Args:
        width: The number of features at each position.
        class_count: The number of classes.
        heads: The number of attention heads, a divisor of `width`.
        channels_first: Whether the features are (N, width, rows, columns), else (N, …, width).
    """

    def __init__(self, width: int, class_count: int, heads: int, channels_first: bool) -> None:
        super().__init__()
        self.channels_first = channels_first
        self.pool = AttentionPoolLatent(width, num_heads=heads, norm_layer=LayerNorm)
        self.fc = nn.Linear(width, class_count)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes)."""
        if self.channels_first:
            features = features.movedim(1, -1)
        return self.fc(self.pool(features.flatten(1, -2)))
