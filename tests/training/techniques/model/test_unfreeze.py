from __future__ import annotations

import copy

import pytest
import timm
import torch
import torchvision
from torch import nn

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.model.levels import find_frozen
from training.model.stages import head_of, layers_of, stages_of
from training.recipe import read_recipe
from training.techniques.model.unfreeze import Unfreeze

# One family a row, as both libraries name it.
FAMILIES = {
    "resnet": ("resnet18", "resnet18"),
    "efficientnet": ("efficientnet_b0", "efficientnet_b0"),
    "vit": ("vit_base_patch16_224", "vit_b_16"),
    "convnext": ("convnext_tiny", "convnext_tiny"),
    "mobilenetv3": ("mobilenetv3_large_100", "mobilenet_v3_large"),
    "vgg": ("vgg16", "vgg16"),
    "densenet": ("densenet121", "densenet121"),
    "swin": ("swin_tiny_patch4_window7_224", "swin_t"),
    "regnet": ("regnety_004", "regnet_y_400mf"),
}
ONE_LIBRARY = [
    *(
        ("torchvision", name)
        for name in ("squeezenet1_0", "shufflenet_v2_x1_0", "alexnet", "mobilenet_v2", "mnasnet1_0")
    ),
    *(("timm", name) for name in ("test_resnet", "test_vit", "deit_tiny_distilled_patch16_224")),
]
MODELS = [
    *(("timm", timm_name) for timm_name, _ in FAMILIES.values()),
    *(("torchvision", name) for _, name in FAMILIES.values()),
    *ONE_LIBRARY,
]

LETTERS = {"name": "test_resnet", "weights": "letters"}


@pytest.fixture(autouse=True)
def no_initial_weights(monkeypatch):
    """Leave the weights uninitialised: names and shapes are enough here, and initialisation would take minutes."""
    for name in ("trunc_normal_", "normal_", "kaiming_normal_", "kaiming_uniform_", "uniform_", "xavier_uniform_"):
        monkeypatch.setattr(nn.init, name, lambda tensor, *args, **kwargs: tensor)


def build(source, name):
    if source == "timm":
        return timm.create_model(name, num_classes=10)
    return torchvision.models.get_model(name, weights=None, num_classes=10)


def trained(model, level):
    """Return the names of the parameters that train at a level."""
    Unfreeze(level=level).apply(TrainingSetup(model, "cpu", 10, (4,), 32)) if level != "full" else None
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def share(model, names):
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return sum(sizes[name] for name in names) / sum(sizes.values())


@pytest.mark.parametrize(("source", "name"), MODELS)
def test_last_trains_the_head_alone_and_most_the_later_half(source, name):
    model = build(source, name)
    order = [parameter for parameter, _ in model.named_parameters()]
    full = trained(model, "full")
    most = trained(model, "most")
    last = trained(model, "last")
    heads = ("fc", "classifier", "head", "heads")
    outputs = dict(model.named_parameters())
    assert {parameter.rpartition(".")[2] for parameter in last} <= {"weight", "bias"}
    assert [parameter for parameter in last if not (parameter.split(".")[0] in heads or "head_dist" in parameter)] == []
    assert {outputs[parameter].shape[0] for parameter in last} == {10}
    assert last < most < full == set(order)
    # What comes first, the stem, is never among most; the later half of the stages holds most of the parameters.
    assert order[0] not in most
    assert 0.4 < share(model, most) < 0.995
    stages = stages_of(model)
    assert len(stages) >= 3
    assert len({id(parameter) for stage in stages for parameter in stage}) == sum(map(len, stages))


@pytest.mark.parametrize("family", FAMILIES)
def test_most_means_the_same_share_in_both_libraries(family):
    ours, theirs = (build(source, name) for source, name in zip(("timm", "torchvision"), FAMILIES[family], strict=True))
    shares = [share(model, trained(model, "most")) for model in (ours, theirs)]
    assert abs(shares[0] - shares[1]) < 0.02


@pytest.mark.parametrize(("source", "name"), MODELS)
def test_first_trains_the_stem_and_first_stages_and_middle_those_between(source, name):
    order = [parameter for parameter, _ in build(source, name).named_parameters()]
    last, first, middle = (trained(build(source, name), level) for level in ("last", "first", "middle"))
    assert first & middle == last
    assert first > last < middle
    assert order[0] in first
    places = [[order.index(parameter) for parameter in level - last] for level in (first, middle)]
    assert max(places[0]) < min(places[1]) < max(places[1]) < len(order) - len(last) - 1


@pytest.mark.parametrize("source", ["timm", "torchvision"])
def test_first_and_middle_of_a_resnet_are_those_of_surgical_fine_tuning(source):
    parts = {
        level: {name.split(".")[0] for name in trained(build(source, "resnet18"), level)}
        for level in ("first", "middle")
    }
    assert parts == {"first": {"conv1", "bn1", "layer1", "fc"}, "middle": {"layer2", "layer3", "fc"}}


@pytest.mark.parametrize("source", ["timm", "torchvision"])
def test_most_of_a_resnet18_is_layer3_layer4_and_the_head(source):
    model = build(source, "resnet18")
    assert {name.split(".")[0] for name in trained(model, "most")} == {"layer3", "layer4", "fc"}
    unfrozen = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    last = {name for name, _ in model.named_parameters() if name.split(".")[0] in ("layer3", "layer4", "fc")}
    assert unfrozen == last


@pytest.mark.parametrize(("name", "count"), [("caformer_s18", 4), ("csatv2", 4), ("pit_ti_224", 3), ("rdnet_tiny", 7)])
def test_models_whose_stages_timm_does_not_name_have_stages(name, count):
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=10)
    stages = stages_of(model)
    assert len(stages) == count
    rest = set(model.parameters()) - {parameter for stage in stages for parameter in stage}
    names = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter in rest}
    assert names <= {"stem", "stem_dct", "patch_embed", "pos_embed", "cls_token", "head"}
    assert len(set(layers_of(model).values())) > count
    assert 0.4 < share(model, trained(model, "most")) < 0.995


def test_a_model_without_known_stages_is_refused_for_most_alone():
    class Unknown(nn.Sequential):
        pass

    model = Unknown(nn.Linear(4, 4), nn.Linear(4, 10))
    assert trained(model, "last") == {"1.weight", "1.bias"}
    with pytest.raises(
        UserError, match=r"unfreeze\.level: the stages of Unknown are not known\. Use last, norm_bias or full"
    ):
        stages_of(model)


def test_dropout_before_frozen_layers_is_frozen_and_dropout_before_the_head_is_not():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Sequential(nn.Linear(4, 4), nn.Dropout()), nn.Dropout())
    model.append(nn.Linear(4, 2))
    for parameter in model[:4].parameters():
        parameter.requires_grad_(False)
    for module in find_frozen(model):
        module.eval()
    assert [module.training for module in model] == [False, False, False, True, True]
    assert not model[2][1].training
    assert model.training


def test_nothing_is_frozen_while_everything_trains():
    assert find_frozen(nn.Sequential(nn.Dropout(), nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU())) == []


def test_the_head_of_a_distilled_model_is_both_its_heads():
    assert len(list(head_of(build("timm", "deit_tiny_distilled_patch16_224")).parameters())) == 4


@pytest.fixture
def watched_fit(fit, load_weights, monkeypatch):
    """Train, and return the names of the weights that changed, and of those that stayed."""

    def run(**fields):
        import training.train as module

        initial, build_model = {}, module.build_model

        def remember(*arguments):
            model = build_model(*arguments)
            initial.update({name: value.clone() for name, value in model.state_dict().items()})
            return model

        with monkeypatch.context() as patch:
            patch.setattr(module, "build_model", remember)
            final = load_weights(fit(**fields).folder)
        moved = {name for name in final if not torch.equal(final[name], initial[name])}
        return moved, final.keys() - moved

    return run


def is_statistic(name):
    return "running" in name or "tracked" in name


def test_norm_bias_trains_the_head_biases_and_norms_and_measures_statistics(watched_fit, monkeypatch):
    monkeypatch.undo()
    moved, still = watched_fit(unfreeze={"level": "norm_bias"}, optimizer={"name": "sgd", "lr": 0.01})
    assert {name.split(".")[0] for name in moved} >= {"bn1", "layer1", "layer4", "fc"}
    assert still
    assert [name for name in still if not (name.endswith("weight") and ("conv" in name or "downsample" in name))] == []
    assert not {name for name in still if "bn" in name or is_statistic(name)}


def test_norm_bias_keeps_drop_path_on_in_every_block():
    from training.techniques.model.drop_path import DropPath

    model = timm.create_model("test_resnet", num_classes=10)
    setup = TrainingSetup(model, "cpu", 10, (4,), 32)
    Unfreeze(level="norm_bias").apply(setup)
    DropPath(rate=0.5).apply(setup)
    model.train()
    for module in setup.frozen:
        module.eval()
    assert model.layer4[0].drop_path.training


def test_norm_bias_of_a_transformer_trains_one_dimension_alone():
    model = build("timm", "test_vit")
    names = trained(model, "norm_bias")
    shapes = {name: parameter.ndim for name, parameter in model.named_parameters()}
    assert {"blocks.0.norm1.weight", "blocks.0.attn.qkv.bias", "patch_embed.proj.bias", "head.weight"} <= names
    assert {name for name in names if shapes[name] > 1} == {"head.weight"}


def test_statistics_of_frozen_stages_adapt_only_if_asked_and_their_scales_stay(watched_fit, monkeypatch):
    monkeypatch.undo()
    sgd = {"name": "sgd", "lr": 0.01}
    moved, still = watched_fit(unfreeze={"level": "last", "adapt_statistics": True}, optimizer=sgd)
    assert {name for name in moved if not is_statistic(name)} == {"fc.weight", "fc.bias"}
    assert not {name for name in still if is_statistic(name)}
    moved, _ = watched_fit(unfreeze={"level": "last"}, optimizer=sgd)
    assert moved == {"fc.weight", "fc.bias"}


def test_swa_refreshes_statistics_that_adapt_and_leaves_others(watched_fit, monkeypatch):
    monkeypatch.undo()
    fields = {"averaging": {"name": "swa", "start": 0.1}, "optimizer": {"name": "sgd", "lr": 0.01}}
    moved, _ = watched_fit(unfreeze={"level": "most"}, **fields)
    assert not {name for name in moved if name.startswith(("bn1", "layer1"))}
    moved, _ = watched_fit(unfreeze={"level": "most", "adapt_statistics": True}, **fields)
    assert {name for name in moved if name.startswith(("bn1", "layer1"))} >= {"bn1.running_mean", "bn1.running_var"}


def test_dropout_in_a_frozen_part_stays_off_when_its_statistics_adapt():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4)), nn.Linear(4, 2))
    setup = TrainingSetup(model, "cpu", 10, (4,), 32)
    Unfreeze(level="last", adapt_statistics=True).apply(setup)
    model.train()
    for module in setup.frozen:
        module.eval()
    assert not model[0][1].training
    assert model[0][2].training


def test_adapting_statistics_is_refused_where_it_does_nothing():
    with pytest.raises(UserError, match=r"adapt_statistics=true does nothing with unfreeze\.level=full"):
        read_recipe({"unfreeze": {"adapt_statistics": True}})
    with pytest.raises(UserError, match=r"the frozen part of VisionTransformer has no BatchNorm"):
        Unfreeze(level="last", adapt_statistics=True).apply(
            TrainingSetup(build("timm", "test_vit"), "cpu", 10, (4,), 32)
        )


def test_from_norm_bias_a_milestone_leads_to_everything():
    recipe = read_recipe({"unfreeze": {"level": "norm_bias", "milestones": [2]}, "epochs": 4})
    assert recipe.unfreeze.levels == ("norm_bias", "full")
    with pytest.raises(UserError, match=r"milestones=\[2, 3\]: from unfreeze\.level=norm_bias there are fewer levels"):
        read_recipe({"unfreeze": {"level": "norm_bias", "milestones": [2, 3]}, "epochs": 4})


@pytest.mark.parametrize("level", ["last", "most", "first", "middle", "full"])
def test_a_fit_changes_only_the_parameters_of_the_level(level, watched_fit, monkeypatch):
    monkeypatch.undo()
    moved, kept = watched_fit(unfreeze={"level": level}, optimizer={"name": "sgd", "lr": 0.01}, backbone=LETTERS)
    frozen_parts = {
        "last": ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4"),
        "most": ("conv1", "bn1", "layer1", "layer2"),
        "first": ("layer2", "layer3", "layer4"),
        "middle": ("conv1", "bn1", "layer1", "layer4"),
    }
    # BatchNorm statistics among them, through all the epochs and validations
    still = {name for name in moved | kept if name.split(".")[0] in frozen_parts.get(level, ())}
    assert kept == still


def test_no_activation_is_stored_for_the_backward_pass_below_the_trained_layers():
    model, images = timm.create_model("test_resnet", num_classes=10), torch.zeros(2, 3, 32, 32)
    assert model.forward_features(images).requires_grad
    trained(model, "last")
    assert not model.forward_features(images).requires_grad
    assert model(images).requires_grad


def is_of_a_norm(name):
    layer = timm.create_model("test_resnet").get_submodule(name.rpartition(".")[0])
    return isinstance(layer, nn.BatchNorm2d)


@pytest.mark.parametrize("level", ["most", "full"])
def test_frozen_batch_norm_keeps_statistics_scales_and_biases_while_the_rest_of_the_level_trains(
    level, watched_fit, monkeypatch
):
    monkeypatch.undo()
    fields = {"optimizer": {"name": "sgd", "lr": 0.01}, "averaging": {"name": "swa"}, "backbone": LETTERS}
    plain, _ = watched_fit(unfreeze={"level": level}, **fields)
    moved, kept = watched_fit(unfreeze={"level": level, "freeze_batch_norm": True}, **fields)
    assert moved == {name for name in plain if not is_of_a_norm(name)}
    assert {name for name in plain if is_of_a_norm(name)} <= kept


def test_a_model_with_frozen_batch_norm_computes_in_training_what_timms_frozen_layers_compute(monkeypatch):
    monkeypatch.undo()  # the values count here
    from timm.utils.model import freeze_batch_norm_2d

    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=10)
    for _ in range(5):
        model(2 * torch.randn(8, 3, 32, 32) + 1)  # statistics that differ from those of one batch
    reference = freeze_batch_norm_2d(copy.deepcopy(model)).train()
    setup = TrainingSetup(model, "cpu", 10, (4,), 32)
    Unfreeze(freeze_batch_norm=True).apply(setup)
    model.train()
    for module in setup.frozen:
        module.eval()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(images), reference(images))
    assert any(module.training for module in model.modules() if isinstance(module, nn.Conv2d))


def test_dropout_before_a_frozen_batch_norm_stays_on():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    setup = TrainingSetup(model, "cpu", 10, (4,), 32)
    Unfreeze(freeze_batch_norm=True).apply(setup)
    model.train()
    for module in setup.frozen:
        module.eval()
    assert [module.training for module in model] == [True, True, False, True]


def test_frozen_batch_norm_stays_frozen_after_a_milestone(watched_fit, monkeypatch):
    monkeypatch.undo()
    unfreeze = {"level": "last", "milestones": [1], "to_full": True, "freeze_batch_norm": True}
    moved, _ = watched_fit(unfreeze=unfreeze, optimizer={"name": "sgd", "lr": 0.01}, backbone=LETTERS)
    assert {name.split(".")[0] for name in moved} == {"conv1", "layer1", "layer2", "layer3", "layer4", "fc"}
    assert list(filter(is_of_a_norm, moved)) == []


def test_frozen_batch_norm_takes_batches_of_one_image(fit, monkeypatch):
    monkeypatch.undo()
    small = {"data": {"name": "digits", "train_size": 23}, "batch_size": 1}
    small |= {"optimizer": {"name": "sgd", "lr": 0.001}, "backbone": LETTERS}
    with pytest.raises(UserError, match="cannot learn from one image"):
        fit(epochs=1, **small)
    assert fit(epochs=1, unfreeze={"freeze_batch_norm": True}, **small).state == "completed"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"level": "last"}, "unfreeze.level=last, which freezes it too"),
        ({"level": "norm_bias"}, "unfreeze.level=norm_bias, which trains its scales"),
        ({"level": "most", "adapt_statistics": True}, "unfreeze.adapt_statistics=true, which measures its statistics"),
    ],
)
def test_frozen_batch_norm_is_refused_where_something_else_decides(fields, words):
    with pytest.raises(UserError, match=f"freeze_batch_norm=true does not fit {words}: leave one out"):
        read_recipe({"unfreeze": {"freeze_batch_norm": True, **fields}})
    parallel = {"data_parallel": {"devices": 2, "sync_batch_norm": True}, "unfreeze": {"freeze_batch_norm": True}}
    with pytest.raises(UserError, match="sync_batch_norm=true does nothing with unfreeze.freeze_batch_norm=true"):
        read_recipe(parallel)
    setup = TrainingSetup(build("timm", "test_vit"), "cpu", 10, (4,), 32)
    with pytest.raises(UserError, match=r"freeze_batch_norm=true: VisionTransformer has no BatchNorm"):
        Unfreeze(freeze_batch_norm=True).apply(setup)
