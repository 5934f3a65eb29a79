"""The two parts of a divided model compute what the whole computes, for models of both libraries."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from training.contract.specs import Backbone
from training.features.split import NoSplit, split_model
from training.model.build import build_model
from training.model.levels import set_level

BACKBONES = (
    ("timm", "test_resnet", 32),
    ("timm", "vit_tiny_patch16_224", 224),
    ("timm", "test_convnext", 32),
    ("timm", "regnety_002", 32),
    ("timm", "mobilenetv3_small_050", 32),
    ("torchvision", "squeezenet1_1", 64),  # dropout, then a convolution as its head
    ("torchvision", "mobilenet_v3_small", 32),  # dropout before its head
    ("torchvision", "shufflenet_v2_x0_5", 32),  # a mean that is no module
)


def freeze(model, level):
    model.train()
    _, frozen = set_level(model, level)
    for module in frozen:
        module.eval()


@pytest.mark.parametrize("level", ["last", "most", "middle"])
@pytest.mark.parametrize(("source", "name", "side"), BACKBONES)
def test_the_two_parts_compute_what_the_whole_computes(source, name, side, level):
    model = build_model(Backbone(source=source, name=name, weights="none"), 5, side)
    freeze(model, level)
    split, images = split_model(model), torch.randn(4, 3, side, side)
    features = split.compute_features(images)
    assert not features.requires_grad
    torch.manual_seed(0)
    expected = model(images)
    torch.manual_seed(0)
    assert torch.equal(split.compute_logits(features), expected)
    model.eval()
    assert torch.equal(split.compute_logits(split.compute_features(images)), model(images))


@pytest.mark.parametrize(("source", "name", "side"), BACKBONES[:-3])
def test_the_features_of_level_last_are_those_after_the_pooling(source, name, side):
    model = build_model(Backbone(source=source, name=name, weights="none"), 5, side)
    freeze(model, "last")
    features = split_model(model).compute_features(torch.randn(2, 3, side, side))
    assert features.shape == (2, model.num_features if name != "mobilenetv3_small_050" else model.head_hidden_size)


def test_active_dropout_before_the_head_stays_in_the_part_that_trains():
    model = build_model(Backbone(source="torchvision", name="squeezenet1_1", weights="none"), 5, 64)
    model.classifier[0].p = 0.5
    freeze(model, "last")
    split = split_model(model)
    features = split.compute_features(torch.randn(2, 3, 64, 64))
    assert not torch.equal(split.compute_logits(features), split.compute_logits(features))


def test_the_modes_and_the_weights_of_the_model_stay_as_they_are():
    model = build_model(Backbone(name="test_resnet", weights="none"), 5, 32)
    freeze(model, "most")
    modes, state = [m.training for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}
    split = split_model(model)
    split.compute_features(torch.randn(2, 3, 32, 32))
    assert [m.training for m in model.modules()] == modes
    assert [(name, value) for name, value in model.state_dict().items() if not torch.equal(state[name], value)] == []


def test_the_rest_uses_the_current_weights():
    model = build_model(Backbone(name="test_resnet", weights="none"), 5, 32)
    freeze(model, "last")
    split = split_model(model)
    features = split.compute_features(torch.randn(2, 3, 32, 32))
    with torch.no_grad():
        model.get_classifier().bias += 7.0
    split.compute_logits(features).sum().backward()
    assert torch.allclose(split.compute_logits(features), model.get_classifier()(features))
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["fc.weight", "fc.bias"]


class Net(nn.Module):
    """A convolution, then a head; `between` computes what the head gets."""

    def __init__(self, between):
        super().__init__()
        self.conv, self.head, self.between = nn.Conv2d(3, 4, 3), nn.Linear(4, 2), between
        self.conv.requires_grad_(False)

    def get_classifier(self):
        return self.head

    def forward(self, images):
        return self.head(self.between(self, self.conv(images).mean((2, 3))))


def random_noise(net, x):
    return x + torch.rand_like(x)


def noise_of_one_size(net, x):
    return x + torch.randn(2, 4)


def random_dropout(net, x):
    return F.dropout(x, 0.5, net.training)


def only_in_training(net, x):
    return x * 2 if net.training else x


def branch(net, x):
    return x if x.sum() > 0 else -x


def plain(net, x):
    return x


def test_a_random_function_in_the_frozen_part_ends_it():
    split = split_model(Net(random_noise))
    features = split.compute_features(torch.ones(2, 3, 8, 8))
    assert torch.equal(features, split.compute_features(torch.ones(2, 3, 8, 8)))
    assert not torch.equal(split.compute_logits(features), split.compute_logits(features))


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (random_dropout, "another way in evaluation"),
        (only_in_training, "another way in evaluation"),
        (branch, "cannot trace"),
        (noise_of_one_size, "draws random numbers"),
    ],
)
def test_a_model_that_computes_in_several_ways_is_not_divided(between, reason):
    with pytest.raises(NoSplit, match=reason):
        split_model(Net(between))


def test_a_model_without_a_frozen_part_is_not_divided():
    with pytest.raises(NoSplit, match="nothing is frozen"):
        split_model(Net(plain).requires_grad_(True))


def test_a_model_with_two_heads_is_not_divided_before_them():
    model = build_model(Backbone(name="deit_tiny_distilled_patch16_224", weights="none"), 5, 224)
    freeze(model, "last")
    with pytest.raises(NoSplit, match="2 tensors leave the frozen part"):
        split_model(model)
