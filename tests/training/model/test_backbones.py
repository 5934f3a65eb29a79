from __future__ import annotations

import logging

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torchvision.models.vision_transformer import VisionTransformer

import training.model.build as models
from training.contract.specs import Backbone
from training.data.load_data import load_data
from training.errors import UserError
from training.model.backbones import build_bare
from training.model.build import build_model
from training.model.stages import head_of
from training.model.weights import pretrained_config
from training.recipe import read_recipe
from training.resolve import resolve_recipe
from training.train import train


def backbone(name="test_resnet", weights="none", source="timm"):
    return Backbone(source=source, name=name, weights=str(weights))


@pytest.mark.parametrize(
    ("source", "name", "near"),
    [
        ("timm", "resnet81", "resnet18|resnet"),
        ("timm", "test_resnet.no_such_tag", "test_resnet"),
        ("torchvision", "resnet_18", "resnet18"),
    ],
)
def test_an_unknown_backbone_is_refused_with_the_nearest_names(source, name, near):
    with pytest.raises(
        UserError, match=rf"backbone\.name={name}: {source} has no such model\. Did you mean .*({near})"
    ):
        build_model(backbone(name, source=source), 10, 32)


@pytest.mark.parametrize("weights", ["none", "pretrained"])
def test_an_unknown_backbone_is_refused_before_any_other_check(weights, tmp_path):
    with pytest.raises(UserError, match="has no such model"):
        train(read_recipe({"backbone": {"name": "bogus", "weights": weights}}), tmp_path)


def test_a_backbone_with_auxiliary_heads_is_refused():
    with pytest.raises(UserError, match="auxiliary heads"):
        build_model(backbone("googlenet", source="torchvision"), 10, 32)


@pytest.mark.parametrize(
    ("source", "name", "size"), [("torchvision", "maxvit_t", 32), ("torchvision", "alexnet", 32), ("timm", "vgg11", 8)]
)
def test_an_image_size_that_a_backbone_does_not_support_gives_one_sentence(source, name, size):
    with pytest.raises(
        UserError, match=rf"backbone\.name={name} cannot classify images of {size}×{size} \(.*image_size"
    ):
        build_model(backbone(name, source=source), 10, size)


def test_building_leaves_the_model_in_training_mode_and_its_statistics_alone():
    model = build_bare(backbone(), 10, 32)
    assert [module for module in model.modules() if not module.training] == []
    assert [
        (name, value)
        for name, value in model.state_dict().items()
        if name.endswith(("running_mean", "tracked")) and value.any()
    ] == []


def test_initial_weights_depend_only_on_the_seed():
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(build_model(backbone(), 10, 32).state_dict())
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
    assert not torch.equal(states[0]["fc.weight"], states[2]["fc.weight"])


def test_a_vision_transformer_accepts_the_requested_size():
    assert build_model(backbone("test_vit"), 10, 48)(torch.zeros(1, 3, 48, 48)).shape == (1, 10)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("torchvision", "mobilenet_v3_small"),  # dropout
        ("torchvision", "efficientnet_b0"),  # both
        ("torchvision", "swin_t"),  # drop path
        ("timm", "efficientnet_b0"),
        ("timm", "vgg11"),
        ("timm", "focalnet_tiny_srf"),  # drop path
    ],
)
def test_a_backbone_of_either_library_starts_without_dropout_and_drop_path(source, name):
    model, images = build_model(backbone(name, source=source), 10, 32), torch.randn(4, 3, 32, 32)
    assert torch.equal(model(images), model(images))


def test_weights_of_torchvisions_own_model_give_the_same_predictions():
    """So exports from before, when dropout was on in training, still load."""
    theirs, images = torchvision.models.efficientnet_b0(num_classes=10).eval(), torch.randn(2, 3, 32, 32)
    ours = build_model(backbone("efficientnet_b0", source="torchvision"), 10, 32).eval()
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize(("source", "name"), [("timm", "test_efficientnet"), ("torchvision", "efficientnet_b0")])
def test_a_new_head_on_pretrained_features_starts_no_larger_than_a_linear_layer(source, name, tmp_path):
    """Both libraries start it with U(±1/√classes), for a training of the whole network from nothing."""
    fresh = build_model(backbone(name, source=source), 10, 32)
    save_file(fresh.state_dict(), tmp_path / "weights.safetensors")
    tuned = build_model(backbone(name, tmp_path / "weights.safetensors", source), 10, 32)
    theirs, ours = head_of(fresh), head_of(tuned)
    assert theirs.weight.abs().max() > 0.3
    assert ours.weight.abs().max() <= ours.in_features**-0.5


def test_a_small_head_starts_as_its_library_has_it(tmp_path):
    torch.manual_seed(0)
    theirs = timm.create_model("test_convnext", num_classes=10)
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    torch.manual_seed(0)
    ours = build_model(backbone("test_convnext", tmp_path / "weights.safetensors"), 10, 32)
    assert torch.equal(head_of(ours).weight, head_of(theirs).weight)


class TestPretrained:
    """Without a network: refused within seconds, or read from what is cached."""

    @pytest.fixture(autouse=True)
    def no_network(self, monkeypatch, tmp_path):
        def refuse(*arguments, **options):
            raise OSError("network is unreachable")

        monkeypatch.setattr("socket.create_connection", refuse)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "torch"))

    @pytest.mark.parametrize(("source", "name"), [("timm", "resnet18"), ("torchvision", "resnet18")])
    def test_unreachable_weights_are_refused(self, source, name, tmp_path):
        recipe = read_recipe({"backbone": {"source": source, "name": name}})
        with pytest.raises(UserError, match=r"weights of .* are not cached here and .* does not answer\. Give a file"):
            train(recipe, tmp_path)

    def test_a_backbone_without_published_weights_is_refused(self, tmp_path):
        name = next(name for name in timm.list_models("resnet*") if not timm.is_model_pretrained(name))
        with pytest.raises(UserError, match=f"timm publishes no weights for {name}"):
            build_model(backbone(name, "pretrained"), 10, 32)

    def test_cached_weights_are_read_without_the_network(self, tmp_path, monkeypatch):
        torch.manual_seed(5)
        weights = timm.create_model("test_vit", num_classes=1000).state_dict()
        save_file(weights, tmp_path / "model.safetensors")
        monkeypatch.setattr(
            "huggingface_hub.try_to_load_from_cache", lambda repo, name: str(tmp_path / "model.safetensors")
        )
        size = timm.get_pretrained_cfg("test_vit").input_size[1]
        model = build_model(backbone("test_vit", "pretrained"), 10, size)
        own = model.state_dict()
        assert [
            (name, value)
            for name, value in weights.items()
            if not name.startswith("head") and not torch.equal(own[name], value)
        ] == []
        # Another size: the position embeddings are stretched, not left as they were drawn.
        stretched = build_model(backbone("test_vit", "pretrained"), 10, size // 2).state_dict()["pos_embed"]
        assert stretched.shape != weights["pos_embed"].shape
        assert abs(float(stretched.mean() - weights["pos_embed"].mean())) < 0.01

    def test_auto_preprocessing_is_the_weights_own(self):
        recipe = read_recipe({"backbone": {"name": "resnet18", "weights": "pretrained"}})
        found = resolve_recipe(recipe, load_data(recipe.data), "cpu").preprocessing
        config = timm.get_pretrained_cfg("resnet18")
        assert (found.image_size, found.mean, found.std) == (224, list(config.mean), list(config.std))
        vision = read_recipe({"backbone": {"source": "torchvision", "name": "resnet18"}})
        found = resolve_recipe(vision, load_data(vision.data), "cpu").preprocessing
        preset = torchvision.models.get_model_weights("resnet18").DEFAULT.transforms()
        assert (found.image_size, found.crop) == (preset.crop_size[0], 1.0)  # digits are too small for a crop
        sized = pretrained_config(vision.backbone)
        assert sized["crop_pct"] == preset.crop_size[0] / preset.resize_size[0]


class TestWeightsFromAFile:
    @pytest.fixture
    def trained(self):
        torch.manual_seed(7)
        return timm.create_model("test_resnet", num_classes=26)

    @pytest.mark.parametrize("wrapped", ["plain", "state_dict", "lightning"])
    def test_a_torch_file_loads_all_but_the_head(self, wrapped, trained, tmp_path):
        state = trained.state_dict()
        if wrapped == "lightning":
            state = {f"model.{name}": value for name, value in state.items()}
        torch.save(state if wrapped == "plain" else {"state_dict": state, "epoch": 3}, tmp_path / "weights.pt")
        self.check(tmp_path / "weights.pt", trained)

    def test_a_safetensors_file_loads_all_but_the_head(self, trained, tmp_path):
        save_file(trained.state_dict(), tmp_path / "weights.safetensors")
        self.check(tmp_path / "weights.safetensors", trained)

    def check(self, path, trained):
        own, theirs = build_model(backbone(weights=path), 10, 32).state_dict(), trained.state_dict()
        assert own["fc.weight"].shape == (10, theirs["fc.weight"].shape[1])
        assert [name for name in own if not name.startswith("fc") and not torch.equal(own[name], theirs[name])] == []

    def test_a_head_of_the_same_size_is_initialised_again(self, tmp_path):
        torch.manual_seed(7)
        state = timm.create_model("test_resnet", num_classes=10).state_dict()
        save_file(state, tmp_path / "weights.safetensors")
        torch.manual_seed(0)
        assert not torch.equal(
            build_model(backbone(weights=tmp_path / "weights.safetensors"), 10, 32).state_dict()["fc.weight"],
            state["fc.weight"],
        )

    def test_keys_that_do_not_match_are_logged(self, trained, tmp_path, caplog):
        state = trained.state_dict()
        del state["conv1.0.weight" if "conv1.0.weight" in state else "conv1.weight"]
        save_file(state, tmp_path / "weights.safetensors")
        with caplog.at_level(logging.WARNING, models.log.name):
            build_model(backbone(weights=tmp_path / "weights.safetensors"), 10, 32)
        assert "not loaded: conv1" in caplog.text

    @pytest.mark.parametrize("source", ["timm", "torchvision"])
    def test_position_embeddings_of_another_size_are_stretched(self, source, tmp_path, caplog, monkeypatch):
        def build_small(name, image_size, num_classes, **_):
            return VisionTransformer(image_size, 16, 1, 2, 32, 32, num_classes=num_classes)

        monkeypatch.setattr(torchvision.models, "get_model", build_small)
        torch.manual_seed(7)
        kind = "vit_b_16" if source == "torchvision" else "test_vit"
        library = {"timm": timm.create_model, "torchvision": torchvision.models.get_model}[source]
        size = {"img_size": 160} if source == "timm" else {"image_size": 64}
        weights = library(kind, num_classes=26, **size).state_dict()
        name = "pos_embed" if source == "timm" else "encoder.pos_embedding"
        weights[name] = torch.linspace(0, 50, weights[name].shape[1])[None, :, None].expand(weights[name].shape).clone()
        save_file(weights, tmp_path / "weights.safetensors")
        with caplog.at_level(logging.WARNING, models.log.name):
            model = build_model(backbone(kind, tmp_path / "weights.safetensors", source), 10, 96)
        found = model.state_dict()[name]
        assert found.shape != weights[name].shape
        assert float(found[:, 1:].mean()) == pytest.approx(
            float(weights[name][:, 1:].mean()), rel=0.02
        )  # random: near 0
        assert float(found.std()) == pytest.approx(float(weights[name].std()), rel=0.1)
        assert not caplog.text
        assert model.missing_weights == 0

    def test_a_tensor_of_another_shape_outside_the_head_is_refused_by_name(self, trained, tmp_path):
        state = trained.state_dict()
        (name, value) = next((n, v) for n, v in state.items() if v.ndim == 4 and n.startswith("layer2"))
        state[name] = torch.cat([value, value], 1)
        save_file(state, tmp_path / "weights.safetensors")
        with pytest.raises(UserError, match=rf"{name} has the shape \(.*\) there and \(.*\) in ResNet"):
            build_model(backbone(weights=tmp_path / "weights.safetensors"), 10, 32)

    def test_missing_weights_above_one_per_cent_are_a_metric(self, trained, tmp_path, fit):
        state = trained.state_dict()
        for removed, names in ((0, []), (2, [name for name in state if name.startswith("layer4")][:2])):
            kept = {name: value for name, value in state.items() if name not in names}
            save_file(kept, tmp_path / f"{removed}.safetensors")
            path = str(tmp_path / f"{removed}.safetensors")
            metrics = fit(backbone={"name": "test_resnet", "weights": path}, epochs=1).metrics[0]
            assert bool(removed) == (metrics.get("missing_weights", 0) > 0.01)

    def test_another_architecture_is_refused(self, trained, tmp_path):
        save_file(trained.state_dict(), tmp_path / "weights.safetensors")
        with pytest.raises(UserError, match=r"tensors are not in it .*same architecture"):
            build_model(backbone("test_vit", tmp_path / "weights.safetensors"), 10, 32)

    @pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
    def test_a_file_without_weights_is_refused(self, name, tmp_path):
        (tmp_path / name).write_text("hello")
        with pytest.raises(UserError, match=rf"backbone\.weights=.*{name}: not a file of weights"):
            build_model(backbone(weights=tmp_path / name), 10, 32)

    def test_a_file_of_something_else_is_refused(self, tmp_path):
        torch.save([1, 2], tmp_path / "weights.pt")
        with pytest.raises(UserError, match="it holds a list"):
            build_model(backbone(weights=tmp_path / "weights.pt"), 10, 32)

    def test_a_missing_file_is_refused_with_the_choices(self, tmp_path):
        with pytest.raises(UserError, match="no such file. Give none, pretrained, letters, or a file"):
            build_model(backbone(weights="pretraned"), 10, 32)
