from __future__ import annotations

import pytest
import timm
import torch
import torchvision

from training.contract.setup import TrainingSetup
from training.data.load_data import load_data
from training.errors import UserError
from training.evaluate import predict_part, restore_model
from training.loop.classifier import group_parameters
from training.recipe import read_recipe
from training.techniques.model.lora import Lora, find_frozen_layers
from training.techniques.model.unfreeze import Unfreeze

BUILDERS = {
    # Branches that start at zero, as they do without pretraining, would hand nothing back to their adapters.
    "timm test_resnet": lambda: timm.create_model("test_resnet", num_classes=10, zero_init_last=False),
    "timm test_vit": lambda: timm.create_model("test_vit", num_classes=10, img_size=32),
    "timm test_convnext": lambda: timm.create_model("test_convnext", num_classes=10),
    "timm test_efficientnet": lambda: timm.create_model("test_efficientnet", num_classes=10),
    "torchvision resnet18": lambda: torchvision.models.resnet18(num_classes=10),
    "torchvision mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=10),
    "torchvision vit": lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10),
}


def adapt(name, level, **fields):
    """A set-up with adapters, and its weights before training."""
    torch.manual_seed(0)
    setup = TrainingSetup(BUILDERS[name](), "cpu", 10, (4,), 32)
    Unfreeze(level=level).apply(setup)
    Lora(rank=2, alpha=16.0, **fields).apply(setup)
    return setup, {key: value.clone() for key, value in setup.model.state_dict().items()}


def train_a_little(setup):
    setup.model.train()
    for module in setup.frozen:
        module.eval()
    optimizer = torch.optim.SGD([p for p in setup.model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(setup.model(torch.randn(4, 3, 32, 32)), torch.arange(4))
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("fields", [{}, {"dora": True, "rank_stabilised": True}], ids=["lora", "dora"])
@pytest.mark.parametrize("name", BUILDERS)
def test_adapters_and_the_head_alone_move_and_merging_changes_nothing(name, fields):
    setup, before = adapt(name, "last", **fields)
    train_a_little(setup)
    after = setup.model.state_dict()
    head = {"fc.", "classifier.", "head.", "heads."}
    for key, value in after.items():
        is_head = any(key.startswith(part) for part in head) and "norm" not in key
        if ".lora_" not in key and not is_head:
            assert torch.equal(value, before[key]), key  # also BatchNorm statistics
    assert [key for key in after if ".lora_B" in key and torch.equal(after[key], before[key])] == []
    plain = BUILDERS[name]()
    plain.load_state_dict(setup.plain_weights(setup.model))
    images = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(plain.eval()(images), setup.model.eval()(images), atol=1e-5)


@pytest.mark.parametrize("name", ["timm test_resnet", "timm test_vit"])
def test_dora_starts_as_the_plain_model_and_trains_the_length_of_each_row(name):
    images = torch.randn(4, 3, 32, 32)
    torch.manual_seed(0)
    plain = BUILDERS[name]().eval()
    setup, before = adapt(name, "last", dora=True)
    with torch.no_grad():
        assert torch.equal(setup.model.eval()(images), plain(images))
    train_a_little(setup)
    after, merged = setup.model.state_dict(), setup.plain_weights(setup.model)
    lengths = [key for key in after if "lora_magnitude_vector" in key]
    assert len(lengths) == sum(".lora_A" in key for key in after) > 3
    for key in lengths:
        assert not torch.equal(after[key], before[key])
        rows = merged[key.partition("lora_magnitude_vector")[0] + "weight"].flatten(1)
        torch.testing.assert_close(rows.norm(dim=1), after[key].flatten())


def test_rank_stabilised_adapters_of_rank_4_train_like_plain_ones_with_twice_the_alpha(fit, load_weights):
    fields = {"unfreeze": {"level": "last"}, "epochs": 1}
    ours = load_weights(fit(**fields, lora={"rank": 4, "alpha": 8.0, "rank_stabilised": True}).folder, "best")
    theirs = load_weights(fit(**fields, lora={"rank": 4, "alpha": 16.0}).folder, "best")
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []


def test_a_weight_without_a_direction_is_refused_by_dora():
    setup = TrainingSetup(BUILDERS["timm test_resnet"](), "cpu", 10, (4,), 32)
    Unfreeze(level="last").apply(setup)
    setup.model.layer1[0].conv1.weight.data[3] = 0
    with pytest.raises(UserError, match=r"lora\.dora=true: the layer layer1\.0\.conv1 of ResNet has outputs"):
        Lora(rank=2, dora=True).apply(setup)


def test_dora_does_not_fit_channels_last():
    fields = {"lora": {"rank": 2, "dora": True}, "unfreeze": {"level": "last"}, "channels_last": {"enabled": True}}
    with pytest.raises(UserError, match=r"channels_last\.enabled=true does not fit lora\.dora=true"):
        read_recipe(fields)


def test_with_most_the_first_half_is_adapted_and_the_later_half_trains_normally():
    setup, before = adapt("torchvision resnet18", "most")
    train_a_little(setup)
    after = setup.model.state_dict()
    moved = {key for key in after if not torch.equal(after[key], before[key])}
    assert {key.split(".")[0] for key in moved if ".lora_" in key} == {"conv1", "layer1", "layer2"}
    assert {key.split(".")[0] for key in moved if ".lora_" not in key} == {"layer3", "layer4", "fc"}


def test_layers_that_the_model_does_not_call_and_grouped_convolutions_get_no_adapter():
    vit = BUILDERS["torchvision vit"]().requires_grad_(False)
    assert [name for name in find_frozen_layers(vit, 32) if "attention" in name] == []
    convnext = BUILDERS["timm test_convnext"]().requires_grad_(False)
    names = find_frozen_layers(convnext, 32)
    assert [name for name in names if "conv_dw" in name] == []
    assert "stages.0.blocks.0.mlp.fc1" in names


def test_the_best_weights_are_those_of_the_plain_model_changed_by_the_rank(fit, load_weights):
    run = fit(unfreeze={"level": "last"}, lora={"rank": 3}, epochs=1)
    best, last = load_weights(run.folder, "best"), load_weights(run.folder, "last")
    timm.create_model("test_resnet", num_classes=10).load_state_dict(best)
    change = best["conv1.3.weight"] - last["conv1.3.base_layer.weight"]
    assert torch.linalg.matrix_rank(change.flatten(1), rtol=1e-3) == 3
    assert torch.equal(best["layer1.0.bn1.running_mean"], torch.zeros(32))


def test_full_freezes_nothing_to_adapt():
    with pytest.raises(UserError, match=r"unfreeze\.level=full freezes none: set unfreeze\.level=last or most"):
        read_recipe({"lora": {"rank": 4}})
    with pytest.raises(UserError, match=r"lora\.alpha and lora\.dora do nothing while lora\.rank is 0"):
        read_recipe({"lora": {"alpha": 4.0, "dora": True}})


def test_a_model_without_a_layer_to_adapt_is_refused():
    setup = TrainingSetup(BUILDERS["timm test_resnet"](), "cpu", 10, (4,), 32)
    with pytest.raises(UserError, match=r"lora\.rank=4: ResNet has no frozen linear layer or ungrouped convolution"):
        Lora(rank=4).apply(setup)


def test_after_a_milestone_adapted_weights_are_unfrozen_and_the_adapters_still_train(fit, load_weights):
    """Level last, then most: the later half's own weights are unfrozen, and in the first half only adapters train."""
    fields = {"lora": {"rank": 2, "alpha": 16.0}, "unfreeze": {"level": "last", "milestones": [1]}}
    fields |= {"backbone": {"name": "test_resnet", "weights": "letters"}, "optimizer": {"name": "sgd", "lr": 0.01}}
    run = fit(**fields, on_report=lambda report: report.epoch < 1)
    early = load_weights(run.folder)
    late = load_weights(fit(folder=run.folder, **fields).folder)
    moved = {name for name in late if not torch.equal(late[name], early[name])}
    adapters = {name for name in late if ".lora_" in name}
    assert adapters <= moved
    stages = {name.split(".")[0] for name in moved - adapters if "running" not in name and "num_batches" not in name}
    assert stages == {"layer3", "layer4", "fc"}


@pytest.mark.parametrize("ratio", [1.0, 16.0])
def test_the_rates_of_lora_plus_are_those_of_pefts_own_optimizer(ratio):
    from peft.optimizers import create_loraplus_optimizer

    setup, _ = adapt("timm test_vit", "last", b_rate=ratio)
    groups = group_parameters(setup, read_recipe({"optimizer": {"name": "sgd"}}).optimizer, 0.16)
    ours = {parameter: group["lr"] for group in groups for parameter in group["params"]}
    theirs = create_loraplus_optimizer(setup.model, torch.optim.SGD, lr=0.16 / ratio, loraplus_lr_ratio=ratio)
    rates = {parameter: group["lr"] for group in theirs.param_groups for parameter in group["params"]}
    adapters = {name: p for name, p in setup.model.named_parameters() if ".lora_" in name}
    assert {ours[p] for name, p in adapters.items() if ".lora_B." in name} == {0.16}
    assert [ours[p] for p in adapters.values()] == pytest.approx([rates[p] for p in adapters.values()])
    assert {ours[p] for p in setup.model.head.parameters()} == {0.16}  # the base rate


def test_lora_plus_multiplies_layer_decay_and_head_rate():
    fields = {"lora": {"rank": 2, "b_rate": 4.0}, "unfreeze": {"level": "last"}}
    fields |= {"layer_decay": {"factor": 0.5}, "head_lr": {"factor": 10.0}}
    recipe = read_recipe(fields)
    setup = TrainingSetup(BUILDERS["timm test_resnet"](), "cpu", 10, (4,), 32)
    for technique in recipe.techniques():
        technique.apply(setup)
    names = dict(setup.model.named_parameters())
    rates = {name: setup.lr_shares[parameter] for name, parameter in names.items()}
    layer = "layer4.0.conv1"
    assert rates[f"{layer}.lora_A.default.weight"] * 4 == pytest.approx(rates[f"{layer}.lora_B.default.weight"])
    assert rates[f"{layer}.lora_B.default.weight"] <= 0.05
    assert rates["fc.weight"] == 1.0


@pytest.mark.parametrize("level", ["last", "most"])
def test_dropout_of_adapters_is_on_in_training_while_that_of_frozen_layers_and_their_statistics_stay_off(level):
    setup, _ = adapt("torchvision mobilenet_v3_small", level, dropout=0.5)
    setup.model.train()
    for module in setup.frozen:
        module.eval()
    frozen = [m for m in setup.model.modules() if isinstance(m, torch.nn.BatchNorm2d) and not m.weight.requires_grad]
    dropouts = {name: m for name, m in setup.model.named_modules() if isinstance(m, torch.nn.Dropout)}
    ours = [module.training for name, module in dropouts.items() if ".lora_dropout." in name]
    assert len(ours) > 3
    assert all(ours)
    assert len(frozen) > 3
    assert [module for module in frozen if module.training] == []
    train_a_little(setup)  # B starts at zero
    images = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        setup.model.eval()
        assert torch.equal(setup.model(images), setup.model(images))


def test_dropout_changes_how_adapters_train_and_nothing_of_the_frozen_part(fit, load_weights):
    fields = {"unfreeze": {"level": "last"}, "backbone": {"name": "test_resnet", "weights": "letters"}}
    fields |= {"optimizer": {"name": "sgd", "lr": 0.01}}
    plain = load_weights(fit(lora={"rank": 2}, **fields).folder)
    dropped = load_weights(fit(lora={"rank": 2, "dropout": 0.5}, **fields).folder)
    moved = {name for name in plain if not torch.equal(plain[name], dropped[name])}
    assert {name for name in plain if ".lora_B." in name} <= moved
    assert [name for name in moved if not (".lora_" in name or name.startswith("fc"))] == []


@pytest.mark.parametrize("dora", [False, True])
def test_an_average_with_adapters_is_the_average_of_the_merged_weights(dora, fit, load_weights):
    fields = {
        "backbone": {"name": "test_vit", "weights": "none"},
        "preprocessing": {"image_size": 32},
        "unfreeze": {"level": "last"},
        "lora": {"rank": 2, "dora": dora},
        "optimizer": {"name": "adam", "lr": 0.01},
    }
    one, two = (
        load_weights(
            fit(**fields, score="last", on_report=lambda report, last=last: report.epoch < last).folder, "best"
        )
        for last in (1, 2)
    )
    run = fit(**fields, score="last", averaging={"name": "swa", "start": 0.1})
    moved = [name for name in one if not torch.equal(one[name], two[name])]
    assert "blocks" in " ".join(moved)
    average = load_weights(run.folder, "best")
    for name, value in average.items():
        torch.testing.assert_close(value, (one[name] + two[name]) / 2, rtol=1e-4, atol=1e-6, msg=name)
    assert run.metrics[1]["val_loss"] == pytest.approx(measure_loss(run.outcome.recipe, average), rel=1e-4)


def measure_loss(recipe, weights):
    logits, labels = predict_part(restore_model(recipe, weights, 10), load_data(recipe.data).val, recipe)
    return float(torch.nn.functional.cross_entropy(logits, labels))
