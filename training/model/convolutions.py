"""Convolutions on a CPU whose images have few pixels left: their gradients are right, and quicker."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d

FEW_PIXELS = 16  # up to which the depthwise gradient below is the quicker one (docs/benchmarks.md, "Minutes")


def replace_convolutions(model: nn.Module) -> None:
    """Let the convolutions of a model that keep the size of their images, but for a stride, compute as below."""
    for conv in (module for module in model.modules() if type(module) is nn.Conv2d):
        side = conv.kernel_size[0]
        usual = ((side, side), (1, 1), (side // 2, side // 2), "zeros")
        if side % 2 and side > 1 and (conv.kernel_size, conv.dilation, conv.padding, conv.padding_mode) == usual:
            conv.__class__ = SmallImageConv2d


class SmallImageConv2d(nn.Conv2d):
    """The convolution without what of its kernel meets only padding, and with another gradient where it is depthwise.

    With bfloat16 on a CPU that has AVX512_BF16, oneDNN 3.13 leaves the gradient of that part as it finds the memory.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        side, padding = self.kernel_size[0], self.kernel_size[0] // 2
        steps = [(pixels - 1) // stride * stride for pixels, stride in zip(input.shape[2:], self.stride, strict=True)]
        if min(steps) < padding:
            (height, width), (top, left) = input.shape[2:], [max(0, padding - step) for step in steps]
            met = self.weight[:, :, top : padding + height, left : padding + width]
            return conv2d(input, met, self.bias, self.stride, (padding - top, padding - left), 1, self.groups)
        is_depthwise = self.in_channels == self.out_channels == self.groups and self.stride == (1, 1) and side > 3
        is_float32 = input.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        is_small = input.shape[2:].numel() <= FEW_PIXELS and not torch.compiler.is_compiling()
        if is_depthwise and is_float32 and is_small and self.weight.requires_grad:
            return _Depthwise.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call, no-any-return]
        return super().forward(input)


class _Depthwise(torch.autograd.Function):
    """With another gradient of the weights: oneDNN's takes up to thirty times that of the images (5×5 and more, AVX2)."""

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
