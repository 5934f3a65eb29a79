"""A quicker gradient of depthwise convolutions on a CPU, where their images have few pixels left."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d

FEW_PIXELS = 16  # up to which the gradient below is the quicker one (docs/benchmarks.md, "Minutes")


def use_quick_gradients(model: nn.Module) -> None:
    """Let the depthwise convolutions of a model compute the gradient of their weights in another way.

    For kernels larger than 3×3 oneDNN multiplies a small matrix for each channel of each image (on AVX2), which takes
    thirty times as long as the gradient of the images.
    """
    convs = [module for module in model.modules() if type(module) is nn.Conv2d]
    for conv in (conv for conv in convs if conv.in_channels == conv.out_channels == conv.groups):
        side = conv.kernel_size[0]
        usual = ((side, side), (1, 1), (1, 1), (side // 2, side // 2), "zeros")
        if side > 3 and (conv.kernel_size, conv.stride, conv.dilation, conv.padding, conv.padding_mode) == usual:
            conv.__class__ = DepthwiseConv2d


class DepthwiseConv2d(nn.Conv2d):
    """The convolution, with another gradient for few pixels."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        is_plain = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or input.dtype != torch.float32
        if is_plain or input.shape[2:].numel() > FEW_PIXELS or not self.weight.requires_grad:
            return super().forward(input)
        return _Depthwise.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call, no-any-return]


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(images, weight)
        return conv2d(images, weight, bias, padding=weight.shape[-1] // 2, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Convolve each channel of each image with its gradient, which then is the kernel, and sum over the images."""
        images, weight = ctx.saved_tensors
        padding, mask = weight.shape[-1] // 2, (ctx.needs_input_grad[0], False, ctx.needs_input_grad[2])
        of_images, _, of_bias = torch.ops.aten.convolution_backward(
            gradient, images, weight, [len(weight)], [1, 1], [padding] * 2, [1, 1], False, [0, 0], len(weight), mask
        )
        # (N, C, H, W) as the N·C channels of one image, which lie last in memory
        one, kernels = (part.permute(2, 3, 0, 1).flatten(2).permute(2, 0, 1) for part in (images, gradient))
        of_weight = conv2d(one[None], kernels[:, None], padding=padding, groups=len(kernels))
        return of_images, of_weight.unflatten(1, images.shape[:2]).sum((0, 1))[:, None], of_bias
