"""BatchNorm over all devices' images together: torch's on GPUs; on CPUs, for which torch has none, one of our own."""

from __future__ import annotations

from typing import Any

import torch
from timm.layers import BatchNormAct2d, convert_sync_batchnorm
from torch import distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm


def synchronise(model: nn.Module, device: str) -> None:
    """Change a model's BatchNorm layers in place; the names of its weights stay."""
    if device != "cpu":
        # timm's layers keep their activation, which torch's own conversion would lose.
        convert_sync_batchnorm(model)
        return
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = SyncActOnCpu if isinstance(module, BatchNormAct2d) else SyncOnCpu


class SyncOnCpu(_BatchNorm):
    """In place of the layers for images and for vectors."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return normalise(self, input) if self.training else super().forward(input)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Of any shape (N, channels, ...)."""


class SyncActOnCpu(BatchNormAct2d):
    """In place of timm's layer, which activates too."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(normalise(self, input))) if self.training else super().forward(input)


def normalise(norm: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
    """By mean and variance over all ranks. In two passes: a variance out of sums of squares would lose its digits."""
    images = input.to(torch.promote_types(input.dtype, torch.float32))
    others = [dim for dim in range(images.dim()) if dim != 1]
    shape = (1, -1, *[1] * (images.dim() - 2))
    own_count = images.new_tensor([images.numel() / images.size(1)])
    sums, count = SumOverRanks.apply(torch.cat([images.sum(others), own_count])).split([images.size(1), 1])
    mean = sums / count
    centred = images - mean.view(shape)
    variance = SumOverRanks.apply(centred.square().sum(others)) / count
    _track(norm, mean.detach(), (variance * count / (count - 1)).detach())
    normal = centred * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        normal = normal * norm.weight.view(shape) + norm.bias.view(shape)
    return normal.to(input.dtype)


def _track(norm: _BatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    factor = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), factor)
    norm.running_var.lerp_(variance.to(norm.running_var.dtype), factor)


class SumOverRanks(torch.autograd.Function):
    """A sum in which every rank has a part: so each part's gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return SumOverRanks.forward(ctx, gradient.contiguous())
