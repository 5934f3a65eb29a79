"""Convolutions on few pixels have the outputs and gradients of torch's own, and right ones where those are wrong."""

import copy
import itertools

import pytest
import timm
import torch
from timm.layers import Conv2dSame
from torch import nn

from training import train
from training.features.split import split_model
from training.model import convolutions
from training.model.convolutions import CpuConv2d, CpuConv2dSame, replace_convolutions


def count_quick(monkeypatch):
    """Return a list that grows with each gradient that is computed in the other way."""
    calls, backward = [], convolutions._Depthwise.backward
    monkeypatch.setattr(
        convolutions._Depthwise, "backward", staticmethod(lambda ctx, *of: calls.append(of) or backward(ctx, *of))
    )
    return calls


def make(channels=6, side=5, layout=torch.channels_last, **options):
    options = {"padding": side // 2, "groups": channels, "bias": False, **options}
    return nn.Conv2d(channels, channels, side, **options).to(memory_format=layout)


def gradients(conv, images):
    images = images.clone().requires_grad_()
    conv.zero_grad()
    output = conv(images)
    (output * torch.arange(output.numel()).view_as(output).sin()).sum().backward()
    return output.detach(), images.grad, conv.weight.grad, conv.bias.grad if conv.bias is not None else None


@pytest.mark.parametrize("side", [4, 5, 7])
@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (2, 5), (1, 1)])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("count", "bias"), [(1, False), (3, True)])
def test_output_and_gradients_are_those_of_the_plain_convolution(monkeypatch, side, shape, layout, count, bias):
    conv, calls = make(side=side, layout=layout, bias=bias), count_quick(monkeypatch)
    images = torch.randn(count, 6, *shape).to(memory_format=layout)
    plain = gradients(copy.deepcopy(conv), images)
    replace_convolutions(conv)
    quick = gradients(conv, images)
    assert bool(calls) == (side == 4 or min(shape) > side // 2)
    for one, other in zip(plain, quick, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 3, (1, 2)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_kernel_is_cut_to_what_meets_pixels(monkeypatch, side, stride, groups):
    real, kernels = convolutions.conv2d, []
    monkeypatch.setattr(
        convolutions, "conv2d", lambda images, weight, *of: kernels.append(weight.shape) or real(images, weight, *of)
    )
    for shape in itertools.product(range(1, 8), repeat=2):
        conv, images = make(side=side, stride=stride, groups=groups, bias=True), torch.randn(2, 6, *shape)
        plain = gradients(copy.deepcopy(conv), images)
        replace_convolutions(conv)
        kernels.clear()
        monkeypatch.setattr(convolutions, "FEW_PIXELS", 0)
        cut = gradients(conv, images)
        for one, other in zip(plain, cut, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        met = (plain[2].abs().sum((0, 1)) > 0).double()  # without a pixel a gradient is exactly 0
        assert [tuple(kernel[2:]) for kernel in kernels] == [tuple(int(met.sum(axis).max()) for axis in (0, 1))]


@pytest.mark.parametrize(
    ("side", "stride", "pixels"), [(3, 2, 1), (5, 1, 1), (5, 2, 1), (7, 1, 1), (7, 2, 1), (7, 1, 2)]
)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_the_gradient_in_bfloat16_is_not_what_the_memory_held(side, stride, pixels, layout, groups):
    conv = make(channels=32, side=side, layout=layout, groups=groups, stride=stride)
    images = torch.randn(8, 32, pixels, pixels)
    exact = gradients(copy.deepcopy(conv), images)[2]
    replace_convolutions(conv)
    for _ in range(3):
        held = [torch.full((32 * 32 * side * side // 2**shift,), 1e30) for shift in range(8)]
        del held
        with torch.autocast("cpu", torch.bfloat16):
            found = gradients(conv, images)[2]
        torch.testing.assert_close(found, exact, rtol=0.1, atol=0.1 * float(exact.abs().max()))


@pytest.mark.parametrize(
    "conv", [make(padding="same"), make(padding_mode="reflect"), nn.ConvTranspose2d(6, 6, 3, padding=1)]
)
def test_other_convolutions_stay_as_they_are(conv):
    before = type(conv)
    replace_convolutions(conv)
    assert type(conv) is before


@pytest.mark.parametrize(
    "conv",
    [
        *(
            make(side=3),
            make(stride=2),
            make(groups=3),
            make(side=1),
            make(side=3, padding=0),
            make(dilation=2, padding=4),
        ),
        nn.Conv2d(6, 12, 5, padding=2, groups=6, bias=False),
        Conv2dSame(6, 6, 5, groups=6, stride=2),
    ],
)
def test_only_large_depthwise_kernels_without_a_stride_have_the_quick_gradient(monkeypatch, conv):
    calls, images = count_quick(monkeypatch), torch.randn(2, 6, 4, 4)
    plain = gradients(copy.deepcopy(conv), images)
    replace_convolutions(conv)
    assert type(conv) in (CpuConv2d, CpuConv2dSame)
    for one, other in zip(plain, gradients(conv, images), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert calls == []


def test_many_pixels_frozen_weights_and_other_numbers_take_the_plain_convolution(monkeypatch):
    conv, calls = make(), count_quick(monkeypatch)
    replace_convolutions(conv)
    gradients(conv, torch.randn(2, 6, 8, 8))
    gradients(conv.double(), torch.randn(2, 6, 4, 4).double())
    conv.float().weight.requires_grad_(False)
    conv(torch.randn(2, 6, 4, 4).requires_grad_()).sum().backward()
    assert calls == []


@pytest.mark.parametrize(("conv", "is_slow"), [
    (make(side=3), False),
    (make(side=3, stride=2), True),
    (make(side=5, bias=True), True),
    (make(side=7, layout=torch.contiguous_format), True),
    (make(side=5, stride=2), True),
    (make(side=3, stride=2, groups=3), False),
    (make(side=5, groups=1), False),
    (Conv2dSame(6, 6, 3, groups=6, stride=2), True),
    (Conv2dSame(6, 6, 5, groups=6), True),
])  # fmt: skip
@pytest.mark.parametrize("pixels", [4, 9])
def test_slow_gradients_in_bfloat16_are_computed_in_float32(monkeypatch, conv, is_slow, pixels):
    conv, calls, images = copy.deepcopy(conv), count_quick(monkeypatch), torch.randn(3, 6, pixels, pixels)
    exact = gradients(copy.deepcopy(conv), images)
    replace_convolutions(conv)
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(conv, images)
    assert bool(calls) == is_slow
    assert found[0].dtype == torch.bfloat16
    for one, other in zip(exact[:3], found, strict=False):
        torch.testing.assert_close(one, other.float(), rtol=0.05, atol=0.02 * float(one.abs().max()))
    assert {gradient.dtype for gradient in found[1:] if gradient is not None} == {torch.float32}


def test_trainings_on_a_cpu_use_it_and_end_as_with_the_plain_convolution(monkeypatch, fit):
    calls = count_quick(monkeypatch)
    backbone = {"name": "mobilenetv3_small_050", "weights": "none"}
    recipe = {"backbone": backbone, "preprocessing": {"image_size": 96}, "optimizer": {"name": "sgd", "lr": 1e-4}}
    quick = fit(epochs=1, **recipe).metrics[-1]
    assert calls
    monkeypatch.setattr(train, "replace_convolutions", lambda model: None)
    plain = fit(epochs=1, **recipe).metrics[-1]
    assert quick["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-3)


def test_a_model_is_divided_for_stored_features_as_before():
    backbone = timm.create_model("mobilenetv3_small_050", num_classes=3).requires_grad_(False)
    backbone.classifier.requires_grad_()
    for module in backbone.modules():
        module.train(not isinstance(module, nn.BatchNorm2d))
    before = len(split_model(backbone).prefix.nodes)
    replace_convolutions(backbone)
    assert len(split_model(backbone).prefix.nodes) == before


def test_a_copy_has_weights_of_its_own_and_the_names_stay(tmp_path):
    model = nn.Sequential(make())
    names = list(model.state_dict())
    replace_convolutions(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.zero_()
    assert list(other.state_dict()) == names
    assert isinstance(other[0], CpuConv2d)
    assert other(torch.ones(1, 6, 4, 4)).abs().max() == 0
    assert model(torch.ones(1, 6, 4, 4)).abs().max() > 0
