"""Convolutions on a CPU, with right gradients where images have few pixels left, and quicker ones where they are depthwise."""

from __future__ import annotations

from typing import Any

import torch
from timm.layers import Conv2dSame
from timm.layers.padding import pad_same
from torch import nn
from torch.nn.functional import conv2d

FEW_PIXELS = 16  # up to which the weights' gradient below is the quicker one (docs/benchmarks.md, "Minutes")
Pair = tuple[int, int]


def replace_convolutions(model: nn.Module) -> None:
    """Let the convolutions of a model compute as below."""
    for module in model.modules():
        if type(module) is Conv2dSame:
            module.__class__ = CpuConv2dSame
        elif type(module) is nn.Conv2d and isinstance(module.padding, tuple) and module.padding_mode == "zeros":
            module.__class__ = CpuConv2d


class CpuConv2d(nn.Conv2d):
    """The convolution without what of its kernel meets only padding: there its gradient is 0.

    With bfloat16 on a CPU that has AVX512_BF16, oneDNN 3.13 leaves the gradient of that part as it finds the memory.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        side, padding, stride = self.kernel_size[0], self.kernel_size[0] // 2, self.stride
        usual = ((side, side), (1, 1), (padding, padding))
        steps = [(pixels - 1) // step * step for pixels, step in zip(input.shape[2:], stride, strict=True)]
        if min(steps) < padding and side % 2 and (self.kernel_size, self.dilation, self.padding) == usual:
            (height, width), (top, left) = input.shape[2:], [max(0, padding - step) for step in steps]
            met = self.weight[:, :, top : padding + height, left : padding + width]
            return conv2d(input, met, self.bias, stride, (padding - top, padding - left), 1, self.groups)
        return _convolve(self, input, self.padding)  # type: ignore[arg-type]


class CpuConv2dSame(Conv2dSame):
    """The convolution of timm that pads its images itself, as TensorFlow does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = pad_same(x, list(self.kernel_size), list(self.stride), list(self.dilation))
        return _convolve(self, padded, (0, 0))


def _convolve(conv: nn.Conv2d, images: torch.Tensor, padding: Pair) -> torch.Tensor:
    """Convolve, with other gradients where those of oneDNN take up to a thousand times as long as the output.

    That is so for weights of 5×5 and more, and in bfloat16 for images with a stride.
    """
    is_depthwise = conv.in_channels == conv.out_channels == conv.groups and conv.dilation == (1, 1)
    is_bfloat16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    is_strided, is_large = conv.stride != (1, 1), min(conv.kernel_size) > 3 and conv.weight.requires_grad
    is_small = is_large and not is_strided and images.shape[2:].numel() <= FEW_PIXELS and images.dtype == torch.float32
    if is_depthwise and not torch.compiler.is_compiling() and ((is_bfloat16 and (is_strided or is_large)) or is_small):
        return _Depthwise.apply(images, conv.weight, conv.bias, conv.stride, padding)  # type: ignore[no-untyped-call, no-any-return]
    return conv2d(images, conv.weight, conv.bias, conv.stride, padding, conv.dilation, conv.groups)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Pair, padding: Pair
    ) -> torch.Tensor:
        ctx.save_for_backward(images, weight)
        ctx.stride, ctx.padding = stride, padding
        return conv2d(images, weight, bias, stride, padding, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Compute in float32; for few pixels, convolve each channel of each image with its gradient, and add the images."""
        saved, weight = ctx.saved_tensors
        images, gradient, wanted = saved.float(), gradient.float(), ctx.needs_input_grad
        is_small = wanted[1] and ctx.stride == (1, 1) and images.shape[2:].numel() <= FEW_PIXELS
        shape = (ctx.stride, ctx.padding, (1, 1), False, (0, 0), len(weight))
        of_images, of_weight, of_bias = torch.ops.aten.convolution_backward(
            gradient, images, weight, [len(weight)], *shape, (wanted[0], wanted[1] and not is_small, wanted[2])
        )
        if is_small:
            # (N, C, H, W) as the N·C channels of one image, which lie last in memory
            one, kernels = (part.permute(2, 3, 0, 1).flatten(2).permute(2, 0, 1) for part in (images, gradient))
            each = conv2d(one[None], kernels[:, None], padding=ctx.padding, groups=len(kernels))
            of_weight = each.unflatten(1, images.shape[:2]).sum((0, 1))[:, None]
        return None if of_images is None else of_images.to(saved.dtype), of_weight, of_bias, None, None
