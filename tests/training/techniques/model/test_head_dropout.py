from __future__ import annotations

import pytest
import timm
import torch
import torchvision

from training.contract.setup import TrainingSetup
from training.model.stages import head_of
from training.techniques.model.head_dropout import HeadDropout

BUILDERS = {
    "timm test_resnet": lambda: timm.create_model("test_resnet", num_classes=10),
    "timm test_vit": lambda: timm.create_model("test_vit", num_classes=10, img_size=32),
    "timm test_convnext": lambda: timm.create_model("test_convnext", num_classes=10),
    "timm test_efficientnet": lambda: timm.create_model("test_efficientnet", num_classes=10),
    "timm deit distilled": lambda: timm.create_model("deit_tiny_distilled_patch16_224", num_classes=10, img_size=32),
    "torchvision resnet18": lambda: torchvision.models.resnet18(num_classes=10),
    "torchvision mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=10),
    "torchvision squeezenet": lambda: torchvision.models.squeezenet1_1(num_classes=10),
    "torchvision vit": lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_dropout_changes_training_alone_and_no_name_of_a_weight(name):
    torch.manual_seed(0)
    model = BUILDERS[name]()
    images = torch.randn(2, 3, 64, 64) if "squeezenet" in name else torch.randn(2, 3, 32, 32)
    names = list(model.state_dict())
    for parameter in head_of(model).parameters():
        torch.nn.init.normal_(parameter)  # some heads start at zero
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.0
    with torch.no_grad():
        trained, predicted = model.train()(images), model.eval()(images)
        HeadDropout(rate=0.9).apply(TrainingSetup(model, "cpu", 10, (4,), 32))
        assert torch.equal(model(images), predicted)
        assert not torch.allclose(model.train()(images)[0], trained[0], atol=1e-4)
    assert list(model.state_dict()) == names


def test_the_head_gets_features_of_which_the_share_is_zero_and_whose_mean_stays():
    model, seen = BUILDERS["torchvision resnet18"](), []
    HeadDropout(rate=0.25).apply(TrainingSetup(model, "cpu", 10, (4,), 32))
    model.avgpool.register_forward_hook(lambda *inputs: torch.ones(64, 512, 1, 1))
    model.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.train()(torch.zeros(64, 3, 32, 32))
    (features,) = seen
    assert features.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert (features == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)


def test_a_rate_of_zero_trains_the_same_bits_as_no_dropout(fit, load_weights):
    plain, off = (load_weights(fit(epochs=1, **fields).folder) for fields in ({}, {"head_dropout": {"rate": 0.0}}))
    assert [name for name in plain if not torch.equal(plain[name], off[name])] == []
