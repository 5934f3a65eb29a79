"""Groups of parameters: layer-wise rates, spared norms, scaled rates, and what is unfrozen at milestones."""

from __future__ import annotations

from itertools import pairwise

import pytest
import timm
import torch
import torchvision
from timm.optim import param_groups_layer_decay, param_groups_weight_decay

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.loop.classifier import Classifier
from training.recipe import read_recipe

MODELS = ("test_resnet", "test_vit", "test_convnext", "test_efficientnet")
ADAMW = {"name": "adamw", "lr": 0.01, "weight_decay": 0.1}


def prepare(model, batch_sizes=(8, 8, 8, 8), **fields):
    """A classifier as training builds it, with its optimizer and schedule."""
    recipe = read_recipe({"epochs": 3, "optimizer": ADAMW, **fields})
    setup = TrainingSetup(model, "cpu", 10, batch_sizes, 32)
    for technique in recipe.techniques():
        technique.apply(setup)
    classifier = Classifier(recipe, setup)
    built = classifier.configure_optimizers()
    return classifier, built["optimizer"], built["lr_scheduler"]["scheduler"]


def by_name(model, groups, key):
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[parameter]: group[key] for group in groups for parameter in group["params"]}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", ["full", "most"])
def test_layer_decay_and_no_decay_group_as_timm_does(name, level):
    model = timm.create_model(name, num_classes=10)
    fields = {"layer_decay": {"factor": 0.7}, "no_decay": {"enabled": True}, "unfreeze": {"level": level}}
    _, optimizer, _ = prepare(model, **fields)
    theirs = param_groups_layer_decay(
        model,
        weight_decay=0.1,
        no_weight_decay_list=model.no_weight_decay() if hasattr(model, "no_weight_decay") else (),
        layer_decay=0.7,
    )
    shares = by_name(model, theirs, "lr_scale")
    assert len(set(shares.values())) > 2
    assert by_name(model, optimizer.param_groups, "lr") == pytest.approx({n: 0.01 * s for n, s in shares.items()})
    assert by_name(model, optimizer.param_groups, "weight_decay") == by_name(model, theirs, "weight_decay")
    assert shares.keys() == {
        n for n, p in model.named_parameters() if p.requires_grad
    }  # frozen parameters are in no group


@pytest.mark.parametrize("beside", [{"lora": {"rank": 2}}, {"activation_checkpointing": {"enabled": True}}])
def test_layers_are_found_below_the_modules_that_other_techniques_add(beside):
    plain, changed = (timm.create_model("test_vit", num_classes=10) for _ in range(2))
    fields = {"layer_decay": {"factor": 0.7}, "unfreeze": {"level": "most"}}
    shares = by_name(plain, prepare(plain, **fields)[1].param_groups, "lr")
    found = by_name(changed, prepare(changed, **fields, **beside)[1].param_groups, "lr")
    plain_names = {name.replace("_checkpoint_wrapped_module.", ""): share for name, share in found.items()}
    assert {name: plain_names[name] for name in shares} == shares
    adapters = {name: share for name, share in plain_names.items() if ".lora_" in name}
    assert bool(adapters) == ("lora" in beside)
    assert [
        share for share in adapters.values() if not (share < min(shares.values()))
    ] == []  # adapters are on the frozen, lower layers


def test_layer_decay_gives_the_adapters_of_a_frozen_backbone_different_rates():
    model = timm.create_model("test_vit", num_classes=10)
    fields = {"layer_decay": {"factor": 0.7}, "unfreeze": {"level": "last"}, "lora": {"rank": 2}}
    rates = by_name(model, prepare(model, **fields)[1].param_groups, "lr")
    adapters = [rate for name, rate in rates.items() if ".lora_A" in name]
    assert adapters == sorted(adapters)
    assert len(set(adapters)) > 2
    assert rates["head.weight"] == 0.01 > adapters[-1]


@pytest.mark.parametrize("beside", [{}, {"layer_decay": {"factor": 0.7}}])
def test_everything_below_the_head_has_a_fraction_of_its_rate(beside):
    plain, changed = (timm.create_model("test_resnet", num_classes=10) for _ in range(2))
    before = by_name(plain, prepare(plain, **beside)[1].param_groups, "lr")
    after = by_name(changed, prepare(changed, **beside, head_lr={"factor": 10.0})[1].param_groups, "lr")
    head = {"fc.weight", "fc.bias"}
    assert {name: after[name] for name in head} == dict.fromkeys(head, 0.01)
    expected = {name: rate / 10 for name, rate in before.items() if name not in head}
    assert {name: after[name] for name in expected} == pytest.approx(expected)


FAMILIES = ["test_vit", "test_resnet", "xcit_nano_12_p8_224", "swin_tiny_patch4_window7_224", "beit_base_patch16_224"]
FAMILIES += ["convnext_atto", "cait_xxs24_224", "levit_128s", "efficientformerv2_s0", "eva02_tiny_patch14_224"]
FAMILIES += ["volo_d1_224", "mvitv2_tiny", "coat_tiny", "naflexvit_base_patch16_gap", "poolformer_s12"]


@pytest.mark.parametrize("name", FAMILIES)
def test_no_decay_alone_groups_as_timm_does(name):
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=10)
    _, optimizer, _ = prepare(model, no_decay={"enabled": True})
    named = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
    theirs = param_groups_weight_decay(model, 0.1, no_weight_decay_list=named)
    assert by_name(model, optimizer.param_groups, "weight_decay") == by_name(model, theirs, "weight_decay")
    assert set(by_name(model, optimizer.param_groups, "lr").values()) == {0.01}


def test_the_lengths_of_dora_do_not_decay():
    model = timm.create_model("test_resnet", num_classes=10)
    fields = {"unfreeze": {"level": "last"}, "lora": {"rank": 2, "dora": True}}
    _, optimizer, _ = prepare(model, no_decay={"enabled": True}, **fields)
    decays = by_name(model, optimizer.param_groups, "weight_decay")
    assert {decays[name] for name in decays if "magnitude" in name} == {0.0}
    assert {decays[name] for name in decays if "lora_A" in name} == {0.1}


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "squeezenet1_0"])
def test_layers_of_torchvisions_models_are_their_stages(name):
    model = torchvision.models.get_model(name, weights=None, num_classes=10)
    _, optimizer, _ = prepare(model, layer_decay={"factor": 0.5})
    rates = by_name(model, optimizer.param_groups, "lr")
    found = list(dict.fromkeys(rates.values()))  # in the order of the network
    assert found == sorted(found)
    assert len(found) >= 5
    assert {rates[name] for name in list(rates)[-2:]} == {0.01}
    if name == "resnet18":
        assert found == pytest.approx([0.01 * 0.5**distance for distance in (5, 4, 3, 2, 1, 0)])


def test_a_model_without_known_layers_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 10))
    with pytest.raises(
        UserError, match=r"layer_decay\.factor: the layers of Sequential are not known\. Set it to 1\.0"
    ):
        prepare(model, layer_decay={"factor": 0.5})


def test_every_group_follows_the_schedule_and_the_metric_is_the_base_rate(fit):
    model = timm.create_model("test_resnet", num_classes=10)
    _, optimizer, schedule = prepare(
        model,
        layer_decay={"factor": 0.5},
        no_decay={"enabled": True},
        schedule={"name": "cosine", "warmup_epochs": 1.0},
    )
    first = by_name(model, optimizer.param_groups, "lr")
    optimizer.step()
    schedule.step()
    second = by_name(model, optimizer.param_groups, "lr")
    ratios = {second[name] / first[name] for name in first}
    assert max(ratios) == pytest.approx(min(ratios))
    assert min(ratios) > 100
    run = fit(layer_decay={"factor": 0.5}, no_decay={"enabled": True}, optimizer=ADAMW)
    assert [metrics["lr"] for metrics in run.metrics] == [0.01, 0.01]


def test_parameters_without_decay_do_not_decay_and_others_do():
    model = timm.create_model("test_resnet", num_classes=10)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    _, optimizer, _ = prepare(model, no_decay={"enabled": True})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # so that only decay changes the weights
    optimizer.step()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {name for name, value in model.named_parameters() if value.ndim > 1}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"lr_scaling": {"rule": "linear"}, "accumulation": {"batches": 2}}, 0.01 * 16 / 256),
        ({"lr_scaling": {"rule": "linear", "reference": 8}, "accumulation": {"schedule": [[0, 4], [1, 1]]}}, 0.04),
        ({"lr_scaling": {"rule": "sqrt", "reference": 32}}, 0.005),
    ],
)
def test_the_rate_follows_the_effective_batch(fields, expected):
    model = timm.create_model("test_resnet", num_classes=10)
    _, optimizer, _ = prepare(model, **fields)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([expected])


def test_an_epoch_with_fewer_batches_than_a_step_wants_scales_by_its_images():
    model = timm.create_model("test_resnet", num_classes=10)
    fields = {"lr_scaling": {"rule": "linear", "reference": 64}, "batch_size": 256, "accumulation": {"batches": 4}}
    _, optimizer, _ = prepare(model, batch_sizes=(200,), **fields)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01 * 200 / 64])


def test_the_scaled_rate_is_the_metric(fit):
    run = fit(lr_scaling={"rule": "linear", "reference": 64}, optimizer={"name": "sgd", "lr": 0.04})
    assert [metrics["lr"] for metrics in run.metrics] == pytest.approx([0.01, 0.01])  # batches of 16


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"layer_decay": {"factor": 0.5}, "unfreeze": {"level": "last"}}, "does nothing while unfreeze.level=last"),
        ({"head_lr": {"factor": 2.0}, "unfreeze": {"level": "last"}}, "does nothing while unfreeze.level=last"),
        ({"unfreeze": {"level": "most", "milestones": [1], "to_full": True}}, "needs level=last and one milestone"),
        ({"unfreeze": {"level": "last", "to_full": True}}, "needs level=last and one milestone"),
        ({"no_decay": {"enabled": True}}, "does nothing while optimizer.weight_decay is 0"),
        ({"lr_scaling": {"reference": 64}}, "does nothing while lr_scaling.rule is none"),
        ({"unfreeze": {"milestone_lr": "auto"}}, "milestone_lr=auto does nothing without unfreeze.milestones"),
        ({"unfreeze": {"milestones": [1]}}, "from unfreeze.level=full there are fewer levels to go"),
        ({"unfreeze": {"level": "most", "milestones": [1, 2]}}, "from unfreeze.level=most there are fewer levels"),
        ({"unfreeze": {"level": "last", "milestones": [2, 1]}}, "in rising order, all below epochs=10"),
        ({"unfreeze": {"level": "last", "milestones": [10]}}, "in rising order, all below epochs=10"),
    ],
)
def test_a_setting_without_effect_is_refused(fields, reason):
    with pytest.raises(UserError, match=reason):
        read_recipe(fields)


LAST, MOST = ("fc",), ("layer3", "layer4", "fc")
GRADUAL = {
    "epochs": 5,
    "unfreeze": {"level": "last", "milestones": [1, 3]},
    "layer_decay": {"factor": 0.8},
    "optimizer": {"name": "nesterov", "lr": 0.01},
    "schedule": {"name": "cosine", "warmup_epochs": 1.0},
}


def test_milestones_unfreeze_layers_with_their_statistics_and_other_layers_continue(fit, load_weights, tmp_path):
    weights = []

    def remember(report):
        weights.append(load_weights(tmp_path))
        return True

    run = fit(folder=tmp_path, **GRADUAL, on_report=remember)
    moved = [
        {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
        for before, after in pairwise(weights)
    ]
    all_of_it = {name.split(".")[0] for name in weights[0]}
    assert moved[0] == moved[1] == set(MOST)
    assert moved[2] == moved[3] == all_of_it
    statistics = [name for name in weights[0] if name.startswith(("layer1", "layer3")) and "running" in name]
    assert [all(torch.equal(weights[0][n], weights[i][n]) for n in statistics if "layer1" in n) for i in (1, 2, 3)] == [
        True, True, False,
    ]  # fmt: skip
    plain = fit(**{**GRADUAL, "unfreeze": {"level": "full"}})
    assert [m["lr"] for m in run.metrics] == [m["lr"] for m in plain.metrics]


def test_a_milestone_can_unfreeze_everything_at_once_and_resumes(fit, load_weights, tmp_path):
    fields = {**GRADUAL, "epochs": 2, "unfreeze": {"level": "last", "milestones": [1], "to_full": True}}
    fit(folder=tmp_path, **fields, on_report=lambda report: False)
    before = load_weights(tmp_path)
    fit(folder=tmp_path, **fields)
    after = load_weights(tmp_path)
    whole = load_weights(fit(**fields).folder)
    assert {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])} == {
        name.split(".")[0] for name in before
    }
    assert [name for name in whole if not torch.equal(whole[name], after[name])] == []


def test_momentum_of_the_head_survives_a_milestone(fit, tmp_path):
    buffers = []

    def read(report):
        state = torch.load(tmp_path / "last.ckpt", weights_only=True)["optimizer_states"][0]["state"]
        buffers.append(len(state))
        return True

    fit(folder=tmp_path, **GRADUAL, on_report=read)
    assert buffers[0] == 2  # weight and bias of the head
    assert buffers == sorted(buffers)
    assert buffers[1] < buffers[3] == len(list(timm.create_model("test_resnet").parameters()))


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_training_with_milestones_resumes_to_the_same_weights(stop, fit, load_weights, tmp_path):
    whole = load_weights(fit(**GRADUAL).folder)
    fit(folder=tmp_path, **GRADUAL, on_report=lambda report: report.epoch < stop)
    fit(folder=tmp_path, **GRADUAL)
    resumed = load_weights(tmp_path)
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
