from __future__ import annotations

import pytest
import timm
import torch
import torchvision
from timm.layers import DropPath as TimmDropPath
from torchvision.ops import StochasticDepth

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.recipe import read_recipe
from training.techniques.model.drop_path import DropPath


def rates(model):
    """Return the rate of each drop path module of a model; modules with rate 0 are left out."""
    found = {name: m.drop_prob for name, m in model.named_modules() if isinstance(m, TimmDropPath)}
    found |= {name: m.p for name, m in model.named_modules() if isinstance(m, StochasticDepth)}
    return {name: pytest.approx(rate) for name, rate in found.items() if rate}


def drop(model, rate):
    DropPath(rate=rate).apply(TrainingSetup(model, "cpu", 10, (4,), 32))
    return model


@pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_resnet"])
def test_timm_models_drop_paths_as_if_timm_had_built_them(name):
    expected = rates(timm.create_model(name, drop_path_rate=0.3))
    assert expected
    assert rates(drop(timm.create_model(name), 0.3)) == expected


def test_torchvision_models_drop_paths_as_if_torchvision_had_built_them(monkeypatch):
    monkeypatch.setattr(torch.nn.init, "trunc_normal_", lambda tensor, *args, **kwargs: tensor)
    expected = rates(torchvision.models.convnext_tiny(stochastic_depth_prob=0.3))
    assert expected
    assert rates(drop(torchvision.models.convnext_tiny(), 0.3)) == expected


def test_images_skip_the_last_branch_with_the_given_rate():
    torch.manual_seed(0)
    block = drop(timm.create_model("test_vit"), 0.4).blocks[-1].train()
    images = torch.randn(2000, 5, 64)
    with torch.no_grad():
        after = block(images)
    # The block has two branches, attention and MLP.
    untouched = torch.isclose(after, images).flatten(1).all(1)
    assert float(untouched.double().mean()) == pytest.approx(0.4 * 0.4, abs=0.03)


@pytest.mark.parametrize("name", ["resnet18", "vgg11"])
def test_a_model_without_drop_path_modules_is_refused(name, monkeypatch):
    for init in ("kaiming_normal_", "normal_"):
        monkeypatch.setattr(torch.nn.init, init, lambda tensor, *args, **kwargs: tensor)
    with pytest.raises(UserError, match=r"drop_path\.rate=0\.1: .* has no residual branches that its library can drop"):
        drop(torchvision.models.get_model(name), 0.1)


def test_frozen_blocks_drop_nothing():
    with pytest.raises(UserError, match=r"drop_path\.rate=0\.1 does nothing with unfreeze\.level=last"):
        read_recipe({"drop_path": {"rate": 0.1}, "unfreeze": {"level": "last"}})
