"""A second pass of each batch at another point, whose gradient replaces that of the first."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from training.contract.setup import FindPoint
from training.model.batch_statistics import on_copies_of_statistics


class SecondPass:
    """Moves the weights before the second pass, and back after its backward pass."""

    def __init__(self, model: nn.Module, find_point: FindPoint) -> None:
        self.model, self.find_point = model, find_point
        self.before: list[tuple[nn.Parameter, torch.Tensor]] = []

    def compute(self, first: torch.Tensor, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the loss at the point that follows from the gradient of the first loss."""
        named = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        weights = list(named.values())
        # Not backward, which would add to the gradients that earlier batches of an optimizer step have left.
        gradients = torch.autograd.grad(first, weights, materialize_grads=True, allow_unused=True)
        with torch.no_grad():
            moves = self.find_point(list(named), [weight.detach() for weight in weights], list(gradients))
            self.before = [(weight, weight.detach().clone()) for weight in weights]
            for weight, move in zip(weights, moves, strict=True):
                weight.add_(move)
        torch.clear_autocast_cache()  # it has the 16-bit copies of the weights before the move
        with on_copies_of_statistics(self.model):
            return compute_loss()

    @torch.no_grad()
    def restore(self) -> None:
        """Give the weights their values from before, bit by bit."""
        for weight, value in self.before:
            weight.copy_(value)
        self.before = []
