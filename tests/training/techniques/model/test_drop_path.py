from __future__ import annotations

from functools import partial

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


TIMM = [
    "test_vit",
    "test_convnext",
    "test_resnet",
    "mobilenetv3_small_050",
    "efficientformerv2_s0",
    "iformer_t",
    "levit_128s",
]
TIMM += ["mobilevit_xxs", "swiftformer_xs", "mobileone_s0", "cait_xxs24_224", "xcit_nano_12_p8_224", "sequencer2d_s"]
TIMM += ["volo_d1_224", "nextvit_small", "swin_tiny_patch4_window7_224"]


@pytest.mark.parametrize("name", TIMM)
def test_timm_models_drop_paths_as_if_timm_had_built_them(name):
    with torch.device("meta"):
        expected = rates(timm.create_model(name, drop_path_rate=0.3))
        assert expected
        assert rates(drop(timm.create_model(name), 0.3)) == expected


def test_the_random_numbers_of_a_training_stay_the_same():
    model, state = timm.create_model("test_vit"), torch.get_rng_state()
    drop(model, 0.3)
    assert torch.equal(torch.get_rng_state(), state)


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


@pytest.mark.parametrize("build", [torchvision.models.resnet18, partial(timm.create_model, "ghostnet_050")])
def test_a_model_whose_library_cannot_drop_is_refused(build):
    with torch.device("meta"):
        model = build()
    with pytest.raises(UserError, match=r"drop_path\.rate=0\.1: .* has no residual branches that its library can drop"):
        drop(model, 0.1)


def test_frozen_blocks_drop_nothing():
    with pytest.raises(UserError, match=r"drop_path\.rate=0\.1 does nothing with unfreeze\.level=last"):
        read_recipe({"drop_path": {"rate": 0.1}, "unfreeze": {"level": "last"}})
