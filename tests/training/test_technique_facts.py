"""What a technique declares about itself is true, and what it declares about its fields names fields that it has."""

from __future__ import annotations

import pytest
import timm
import torch

from training.contract.part import Part
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError
from training.families import FAMILIES
from training.recipe import Recipe, read_recipe

BASE = {"data": {"name": "digits", "train_size": 23}, "backbone": {"name": "test_resnet", "weights": "none"}}
PARTS = {name: info.default for name, info in Recipe.model_fields.items() if isinstance(info.default, Part)}
EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{number}")
    for name, part in PARTS.items()
    if isinstance(part, Technique) and name != "compilation"  # it takes half a minute, and changes no prediction
    for number, example in enumerate(type(part).examples or [{name: part.model_dump()}])
]


@pytest.mark.parametrize("name", PARTS)
def test_what_a_part_declares_about_its_fields_names_fields_of_one_of_its_kinds(name):
    part = PARTS[name]
    kinds = Recipe.kinds(name).values() if name in FAMILIES else [type(part)]
    fields = {field for kind in kinds for field in kind.model_fields}
    prepared = part.prepared_fields
    named = {*part.places, *(prepared if prepared != "all" else ())}
    if isinstance(part, Technique):
        named |= {part.needs_trained_backbone, part.needs_pairs} - {""}
    assert named <= fields


def prepare(recipe: Recipe) -> TrainingSetup:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=10)
    setup = TrainingSetup(
        model, "cpu", 10, (4, 4), 64, class_images=(10,) * 10, read_teacher=lambda path: path  # type: ignore
    )  # fmt: skip
    for technique in recipe.techniques():
        technique.apply(setup)
    return setup


@torch.no_grad()
def predict(model: torch.nn.Module) -> torch.Tensor:
    return model.eval()(torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)))


def rebuild(recipe: Recipe, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    model = timm.create_model("test_resnet", num_classes=10)
    for technique in recipe.techniques():
        technique.rebuild(model, 10, 64)
    model.load_state_dict(weights)
    return predict(model)


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_a_trained_model_is_rebuilt_to_the_same_predictions_and_needs_what_says_so(name, example):
    recipe = read_recipe({**BASE, **example})
    try:
        setup = prepare(recipe)
    except UserError as error:
        pytest.skip(str(error))
    weights = (setup.plain_weights or torch.nn.Module.state_dict)(setup.model)
    wanted = predict(setup.model)
    torch.testing.assert_close(rebuild(recipe, weights), wanted, atol=1e-5, rtol=1e-4)
    try:
        same = torch.allclose(rebuild(recipe.without(name), weights), wanted, atol=1e-5)
    except RuntimeError:  # the weights do not fit
        same = False
    assert getattr(recipe, name).is_in_model == (not same or setup.evaluated_size is not None)
