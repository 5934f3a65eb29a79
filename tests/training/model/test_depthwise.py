"""Depthwise convolutions on few pixels have the gradients of torch's own."""

import copy

import pytest
import timm
import torch
from torch import nn

from training import train
from training.features.split import split_model
from training.model import depthwise
from training.model.depthwise import DepthwiseConv2d, use_quick_gradients


def count_quick(monkeypatch):
    """Return a list that grows with each gradient that is computed in the other way."""
    calls, backward = [], depthwise._Depthwise.backward
    monkeypatch.setattr(
        depthwise._Depthwise, "backward", staticmethod(lambda ctx, *of: calls.append(of) or backward(ctx, *of))
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


@pytest.mark.parametrize("side", [5, 7])
@pytest.mark.parametrize("shape", [(4, 4), (3, 3), (2, 5), (1, 1)])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("count", "bias"), [(1, False), (3, True)])
def test_output_and_gradients_are_those_of_the_plain_convolution(monkeypatch, side, shape, layout, count, bias):
    conv, calls = make(side=side, layout=layout, bias=bias), count_quick(monkeypatch)
    images = torch.randn(count, 6, *shape).to(memory_format=layout)
    plain = gradients(copy.deepcopy(conv), images)
    use_quick_gradients(conv)
    quick = gradients(conv, images)
    assert calls
    for one, other in zip(plain, quick, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "conv",
    [
        make(side=3),
        make(stride=2),
        make(dilation=2),
        make(padding=0),
        make(padding_mode="reflect"),
        make(groups=3),
        nn.Conv2d(6, 12, 5, padding=2, groups=6, bias=False),
    ],
)
def test_other_convolutions_stay_as_they_are(conv):
    use_quick_gradients(conv)
    assert type(conv) is nn.Conv2d


def test_many_pixels_frozen_weights_and_other_numbers_take_the_plain_convolution(monkeypatch):
    conv, calls = make(), count_quick(monkeypatch)
    use_quick_gradients(conv)
    gradients(conv, torch.randn(2, 6, 8, 8))
    gradients(conv.double(), torch.randn(2, 6, 4, 4).double())
    conv.float().weight.requires_grad_(False)
    conv(torch.randn(2, 6, 4, 4).requires_grad_()).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        conv.requires_grad_()(torch.randn(2, 6, 4, 4)).sum().backward()
    assert calls == []


def test_trainings_on_a_cpu_use_it_and_end_as_with_the_plain_convolution(monkeypatch, fit):
    calls = count_quick(monkeypatch)
    backbone = {"name": "mobilenetv3_small_050", "weights": "none"}
    recipe = {"backbone": backbone, "preprocessing": {"image_size": 32}, "optimizer": {"name": "sgd", "lr": 1e-4}}
    quick = fit(epochs=1, **recipe).metrics[-1]
    assert calls
    monkeypatch.setattr(train, "use_quick_gradients", lambda model: None)
    plain = fit(epochs=1, **recipe).metrics[-1]
    assert quick["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-3)


def test_a_model_is_divided_for_stored_features_as_before():
    backbone = timm.create_model("mobilenetv3_small_050", num_classes=3).requires_grad_(False)
    backbone.classifier.requires_grad_()
    for module in backbone.modules():
        module.train(not isinstance(module, nn.BatchNorm2d))
    before = len(split_model(backbone).prefix.nodes)
    use_quick_gradients(backbone)
    assert len(split_model(backbone).prefix.nodes) == before


def test_a_copy_has_weights_of_its_own_and_the_names_stay(tmp_path):
    model = nn.Sequential(make())
    names = list(model.state_dict())
    use_quick_gradients(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.zero_()
    assert list(other.state_dict()) == names
    assert isinstance(other[0], DepthwiseConv2d)
    assert other(torch.ones(1, 6, 4, 4)).abs().max() == 0
    assert model(torch.ones(1, 6, 4, 4)).abs().max() > 0
