"""Several models with one architecture as one model, whose probabilities are the mean of theirs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn


class Ensemble(nn.ModuleList):
    """Predicts the mean of the members' probabilities; its weights are named `0.…`, `1.…` and so on."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes) for images (N, 3, side, side)."""
        return join_logits([member(images) for member in self])


def join_logits(logits: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return logits (N, classes) whose softmax is the mean of the softmax of each of `logits`."""
    if len(logits) == 1:
        return logits[0]
    return torch.stack([member.log_softmax(1) for member in logits]).logsumexp(0) - math.log(len(logits))


def join_weights(members: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the weights of the ensemble of models with these weights."""
    return {f"{number}.{name}": value for number, member in enumerate(members) for name, value in member.items()}


def count_members(names: Iterable[str]) -> int:
    """Return the number of members that have weights with these names."""
    return len({name.partition(".")[0] for name in names})
