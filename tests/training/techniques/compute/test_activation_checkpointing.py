from __future__ import annotations

import copy

import pytest
import timm
import torch
import torchvision
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.profiler import profile

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.recipe import read_recipe
from training.techniques.compute.activation_checkpointing import ActivationCheckpointing

MODELS = {
    "timm test_resnet": lambda: timm.create_model("test_resnet", num_classes=10, drop_path_rate=0.5),
    "timm test_vit": lambda: timm.create_model("test_vit", num_classes=10, img_size=32, proj_drop_rate=0.2),
    "timm test_convnext": lambda: timm.create_model("test_convnext", num_classes=10),
    "timm test_efficientnet": lambda: timm.create_model("test_efficientnet", num_classes=10, drop_path_rate=0.5),
    "torchvision resnet18": lambda: torchvision.models.resnet18(num_classes=10),
    "torchvision mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=10),
    "torchvision vit": lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10),
}


def build(name, enabled):
    torch.manual_seed(0)
    model = MODELS[name]()
    if enabled:
        ActivationCheckpointing(enabled=True).apply(TrainingSetup(model, "cpu", 10, (8,), 32))
    return model.train()


def step(model):
    """Take two steps, and return the bytes that the forward pass of the second keeps for the backward pass."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        with profile(profile_memory=True) as seen:
            loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 3, 32, 32)), torch.arange(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return sum(event.self_cpu_memory_usage for event in seen.events())


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_statistics_are_bit_equal_and_less_memory_is_used(name):
    plain, checkpointed = build(name, False), build(name, True)
    kept, kept_less = step(plain), step(checkpointed)
    expected, states = plain.state_dict(), checkpointed.state_dict()
    assert states.keys() == expected.keys()
    assert [key for key in expected if not torch.equal(states[key], expected[key])] == []
    assert kept_less < 0.8 * kept


def test_a_copy_recomputes_its_own_blocks():
    """Averaged weights are such a copy."""
    model = build("torchvision resnet18", True)
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.data.zero_()
    other(torch.randn(2, 3, 32, 32)).sum().backward()
    assert [parameter for parameter in model.parameters() if parameter.grad is not None] == []
    assert int(model.bn1.num_batches_tracked) == int(model.layer1[0].bn1.num_batches_tracked) == 0
    assert int(other.layer1[0].bn1.num_batches_tracked) == 1


def test_a_fit_ends_in_the_same_weights(fit, load_weights):
    options = {"epochs": 1, "drop_path": {"rate": 0.5}, "precision": {"mode": "bf16-mixed"}}
    plain, checkpointed = fit(**options), fit(**options, activation_checkpointing={"enabled": True})
    assert plain.metrics == checkpointed.metrics
    for which in ("last", "best"):
        expected, states = load_weights(plain.folder, which), load_weights(checkpointed.folder, which)
        assert states.keys() == expected.keys()
        assert [key for key in expected if not torch.equal(states[key], expected[key])] == []


def count_checkpointed(**fields):
    recipe = read_recipe({"activation_checkpointing": {"enabled": True}, **fields})
    setup = TrainingSetup(MODELS["timm test_resnet"](), "cpu", 10, (8,), 32)
    for technique in recipe.techniques():
        technique.apply(setup)
    return sum(isinstance(module, CheckpointWrapper) for module in setup.model.modules())


def test_blocks_that_a_milestone_unfreezes_are_recomputed_too():
    assert count_checkpointed(unfreeze={"level": "last", "milestones": [1]}) == 2  # the later half of four
    assert count_checkpointed(unfreeze={"level": "last", "milestones": [1, 2]}) == 4


def test_a_frozen_backbone_is_refused_unless_it_has_adapters():
    assert count_checkpointed(unfreeze={"level": "last"}, lora={"rank": 2}) == 4
    with pytest.raises(UserError, match=r"enabled=true does nothing while unfreeze\.level=last trains the head alone"):
        count_checkpointed(unfreeze={"level": "last"})


def test_a_model_without_blocks_is_refused():
    model = torchvision.models.AlexNet(num_classes=10)
    with pytest.raises(UserError, match=r"activation_checkpointing\.enabled=true: AlexNet has no blocks"):
        ActivationCheckpointing(enabled=True).apply(TrainingSetup(model, "cpu", 10, (8,), 64))
