"""BatchNorm over the images of all devices: torch's on GPUs, our own on CPUs, for which torch has none."""

from __future__ import annotations

import torch
from timm.layers import BatchNormAct2d, convert_sync_batchnorm
from torch import distributed, nn
from torch.autograd.function import FunctionCtx
from torch.nn.modules.batchnorm import _BatchNorm


def synchronise(model: nn.Module, device: str) -> None:
    """Replace a model's BatchNorm layers in place; the names of the weights do not change."""
    if device != "cpu":
        # timm's conversion keeps the activation of timm's layers; torch's own conversion loses it.
        convert_sync_batchnorm(model)
        return
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = SyncActOnCpu if isinstance(module, BatchNormAct2d) else SyncOnCpu


class SyncOnCpu(_BatchNorm):
    """Replaces torch's layers for images and for vectors."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return normalise(self, input) if self.training else super().forward(input)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Accept any shape (N, channels, ...)."""


class SyncActOnCpu(BatchNormAct2d):
    """Replaces timm's layer, which contains an activation."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(normalise(self, input))) if self.training else super().forward(input)


def normalise(norm: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
    """Normalise (N, channels, ...) by the mean and variance over all ranks. Two passes keep the variance precise."""
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
    """The sum over all ranks. The gradient of each term is the sum of the gradients of all ranks."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: torch.Tensor) -> torch.Tensor:
        total = value.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return SumOverRanks.forward(ctx, gradient.contiguous())
