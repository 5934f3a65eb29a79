"""The head pools positions as timm's own models do, trains alone, and is exported."""

from __future__ import annotations

import pytest
import timm
import torch

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.evaluate import restore_model
from training.features.split import split_model
from training.recipe import read_recipe
from training.techniques.model.attention_pooling import AttentionPooling, attach_head
from training.techniques.model.unfreeze import Unfreeze


def test_the_head_computes_what_timm_computes_with_its_own():
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, global_pool="map").eval()
    ours = attach_head(timm.create_model("vit_tiny_patch16_224", num_classes=10, img_size=32).eval(), 5, 3, 32)
    names = {"attn_pool.": "head.pool.", "head.": "head.fc."}
    weights = {}
    for name, value in theirs.state_dict().items():
        prefix = next((prefix for prefix in names if name.startswith(prefix)), "")
        weights[names.get(prefix, "") + name.removeprefix(prefix)] = value
    ours.load_state_dict(weights)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        # timm's own head leaves the class token out of the pooling.
        tokens = ours.forward_features(images)
        assert torch.allclose(ours.head(tokens[:, 1:]), theirs(images), atol=1e-6)
        assert torch.equal(ours.head(tokens), ours(images))


@pytest.mark.parametrize(
    ("name", "side", "width", "positions"),
    [
        ("test_resnet", 64, 96, 4),
        ("test_convnext", 96, 64, 9),
        ("test_mambaout", 64, 256, 4),  # its channels are last
        ("mobilenetv3_small_050", 64, 1024, 4),
        ("cait_xxs24_224", 224, 192, 197),
    ],
)
def test_the_head_gets_all_positions_and_trains_alone(name, side, width, positions):
    setup = TrainingSetup(timm.create_model(name, num_classes=3), "cpu", 10, (4,), side)
    AttentionPooling(heads=4).apply(setup)
    Unfreeze(level="last").apply(setup)
    model, head = setup.model, setup.model.get_classifier()
    given = []
    head.pool.register_forward_pre_hook(lambda _, tokens: given.append(tokens[0].shape))
    assert model.eval()(torch.randn(2, 3, side, side)).shape == (2, 10)
    assert given == [(2, positions, width)]
    assert {p for p in model.parameters() if p.requires_grad} == set(head.parameters())


def test_the_stored_features_are_those_of_all_positions():
    setup = TrainingSetup(timm.create_model("test_resnet"), "cpu", 10, (4,), 64)
    AttentionPooling(heads=4).apply(setup)
    Unfreeze(level="last").apply(setup)
    setup.model.train()
    for module in setup.frozen:
        module.eval()
    assert split_model(setup.model).compute_features(torch.randn(2, 3, 64, 64)).shape == (2, 96, 2, 2)


def test_it_learns_what_the_mean_of_the_positions_loses(fit):
    fields = {
        "data": {"name": "digits", "train_size": 200},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "preprocessing": {"image_size": 96},
        "unfreeze": {"level": "last"},
        "optimizer": {"name": "adamw", "lr": 0.002},
        "schedule": {"name": "cosine"},
        "epochs": 20,
    }
    plain, run = fit(**fields), fit(**fields, attention_pooling={"heads": 4})
    assert run.outcome.reports[-1].score > plain.outcome.reports[-1].score + 0.05


def test_a_saved_model_is_read_again_with_the_same_logits(fit, load_weights):
    run = fit(attention_pooling={"heads": 4}, preprocessing={"image_size": 64})
    weights = load_weights(run.folder, "best")
    model = restore_model(run.outcome.recipe, weights, 10)
    assert [(name, value) for name, value in model.state_dict().items() if not torch.equal(value, weights[name])] == []
    assert [name for name in weights if name.startswith("fc.pool.")] != []


@pytest.mark.parametrize(
    ("name", "heads", "words"),
    [
        (
            "deit_tiny_distilled_patch16_224",
            4,
            r"attention_pooling\.heads=4: .* does not hand all positions to one head",
        ),
        ("test_resnet", 5, r"attention_pooling\.heads=5: the 96 features of ResNet cannot be divided by it"),
    ],
)
def test_a_backbone_that_cannot_is_refused(name, heads, words):
    setup = TrainingSetup(timm.create_model(name), "cpu", 10, (4,), 224)
    with pytest.raises(UserError, match=words):
        AttentionPooling(heads=heads).apply(setup)


def test_torchvisions_models_are_refused():
    with pytest.raises(UserError, match="does not fit backbone.source=torchvision: use timm"):
        read_recipe({"attention_pooling": {"heads": 4}, "backbone": {"source": "torchvision"}})
