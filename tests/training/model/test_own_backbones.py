"""Backbones of the user's own train with every technique that needs a head and stages."""

from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar

import pytest
import torch
from torch import nn

from training import plugins
from training.contract.specs import OwnBackbone
from training.errors import UserError
from training.model.build import build_model
from training.model.stages import blocks_of, head_of, stages_of
from training.model.weights import fetch_early
from training.recipe import Recipe, read_recipe

OWN = {"source": "own", "name": "small_net", "weights": "none"}


def block(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class SmallNet(OwnBackbone):
    stem: ClassVar[str] = "stem"
    stages: ClassVar[tuple[str, ...]] = ("one", "two")
    head: ClassVar[str] = "head"

    def build(self, class_count, image_size):
        pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(
            OrderedDict(
                stem=block(3, 8), one=block(8, 16), two=block(16, 32), pool=pool, head=nn.Linear(32, class_count)
            )
        )


@pytest.fixture(autouse=True)
def nothing_of_ones_own_afterwards():
    yield
    Recipe.forget()


def add(kind=SmallNet, **names):
    kind = type(kind.__name__, (kind,), names)
    plugins.register(kind, "sha256-0", "mine.py")


def test_its_head_and_stages_are_those_that_it_declares():
    add()
    model = build_model(read_recipe({"backbone": OWN}).backbone, 5, 32)
    assert head_of(model) is model.head
    assert [set(stage) for stage in stages_of(model)] == [set(model.one.parameters()), set(model.two.parameters())]
    assert blocks_of(model) == ["one", "two"]
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 5)


def test_the_recipe_records_the_hash_and_other_recipes_do_not():
    add()
    assert read_recipe({"backbone": OWN}).model_dump()["backbone"]["code"] == "sha256-0"
    assert "code" not in Recipe().model_dump()["backbone"]
    recorded = read_recipe({"backbone": OWN}).model_dump()
    Recipe.forget()
    with pytest.raises(UserError, match=r"has the backbone small_net \(sha256-0\): give its file with --plugin"):
        read_recipe(recorded)
    with pytest.raises(UserError, match=r"backbone\.name=small_net with source=own: none is loaded"):
        build_model(read_recipe({"backbone": OWN}).backbone, 5, 32)


@pytest.mark.parametrize(
    "techniques",
    [
        {"unfreeze": {"level": "most"}, "layer_decay": {"factor": 0.5}, "averaging": {"name": "ema"}},
        {"unfreeze": {"level": "last"}, "lora": {"rank": 2}},
        {"activation_checkpointing": {"enabled": True}, "head_lr": {"factor": 5.0}, "averaging": {"name": "swa"}},
    ],
)
def test_it_trains_with_techniques_that_need_stages_and_resumes_to_the_same_weights(
    techniques, fit, load_weights, tmp_path
):
    add()
    whole = fit(backbone=OWN, **techniques)
    fit(folder=tmp_path, backbone=OWN, **techniques, on_report=lambda report: False)
    resumed = fit(folder=tmp_path, backbone=OWN, **techniques)
    assert resumed.state == "completed"
    ours, theirs = load_weights(whole.folder), load_weights(tmp_path)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_pretrained_weights_are_those_that_it_returns():
    weights = {name: torch.full_like(value, 0.5) for name, value in SmallNet().build(7, 32).state_dict().items()}
    add(pretrained=lambda self: weights)
    model = build_model(read_recipe({"backbone": {**OWN, "weights": "pretrained"}}).backbone, 5, 32)
    assert bool((model.one[0].weight == 0.5).all())
    assert not bool((model.head.weight == 0.5).any())


def test_pretrained_weights_of_its_own_are_checked_before_a_sweep_starts():
    add(pretrained=lambda self: {})
    said = []
    fetch_early(read_recipe({"backbone": {**OWN, "weights": "pretrained"}}).backbone, said.append)
    assert said == ["fetching the pretrained weights of own's small_net"]


def raise_error(self, class_count, image_size):
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("names", "weights", "sentence"),
    [
        (
            {"head": "haed"},
            "none",
            "'haed' is not the name of one of its modules. .* there are stem, one, two, pool, head",
        ),
        ({"build": raise_error}, "none", "its build raised RuntimeError: not today"),
        ({"build": lambda self, classes, side: 3}, "none", "its build returns a value of type int, not a torch module"),
        ({"build": lambda self, classes, side: SmallNet().build(classes + 1, side)}, "none", "output for one image"),
        ({}, "pretrained", "small_net is your own and has no pretrained weights"),
    ],
)
def test_a_backbone_that_cannot_be_used_is_refused(names, weights, sentence):
    add(**names)
    with pytest.raises(UserError, match=sentence):
        build_model(read_recipe({"backbone": {**OWN, "weights": weights}}).backbone, 5, 32)


def test_a_class_without_build_is_refused():
    with pytest.raises(UserError, match=r"--plugin=mine\.py: Empty has no method build"):
        plugins.register(type("Empty", (OwnBackbone,), {}), "sha256-0", "mine.py")
