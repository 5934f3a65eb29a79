"""A head that pools the positions of a backbone's output by attention."""

from __future__ import annotations

import torch
from timm.layers import AttentionPoolLatent, LayerNorm
from torch import nn


class AttentiveHead(nn.Module):
    """timm's attention pooling of features with `width` entries at each position, then a linear layer.

    `heads` divides `width`. The features are (N, width, rows, columns) if `channels_first`, else (N, …, width).
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
