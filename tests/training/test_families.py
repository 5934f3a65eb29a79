"""A kind of a family is one class in one file: in the folder of the family, or in a file of the user's."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from spaces.load import load_space, parse_space
from spaces.parameters.draws import RandomTrial
from training import plugins
from training.errors import UserError
from training.recipe import Recipe, read_recipe

FILES = {
    "data": """
import numpy as np
from training.contract.specs import Data

class Stripes(Data):
    def load(self):
        random = np.random.default_rng(0)
        images = [np.repeat(random.integers(0, 256, (32, 1), dtype=np.uint8), 32, 1) for _ in range(80)]
        return [image.T if n % 2 else image for n, image in enumerate(images)], ["down", "across"] * 40
""",
    "augmentation": """
from training.contract.policy import Policy

class Inverted(Policy):
    def transforms(self, interpolation):
        import albumentations as A

        return [A.InvertImg(p=0.5)]
""",
    "loss": """
from training.techniques.loss.losses import Loss

class Brier(Loss):
    def losses(self, logits, targets):
        return (logits.softmax(1) - targets).square().sum(1)
""",
    "optimizer": """
from training.contract.optimizer import Lr, Optimizer, WeightDecay

class Radam(Optimizer):
    lr: Lr = 0.01
    weight_decay: WeightDecay = 0.0

    def build(self, parameters):
        from torch.optim import RAdam

        return RAdam(parameters, **self.arguments())
""",
    "schedule": """
from training.contract.schedule import Schedule

class InverseSqrt(Schedule):
    def after_warmup(self, steps, warmup):
        start = max(1, warmup)
        return lambda step: (start / (start + step)) ** 0.5
""",
}
KINDS = {
    "data": {"name": "stripes"},
    "augmentation": {"policy": "inverted"},
    "loss": {"name": "brier"},
    "optimizer": {"name": "radam"},
    "schedule": {"name": "inverse_sqrt", "warmup_epochs": 0.5},
}


@pytest.fixture(autouse=True)
def only_bundled_kinds_afterwards():
    yield
    plugins.forget()
    Recipe.find_kinds()  # one test adds a bundled kind


@pytest.fixture(params=list(FILES))
def family(request, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILES[request.param])
    plugins.load([file])
    return request.param


def test_a_kind_of_ones_own_trains_and_is_recorded_with_the_hash_of_its_file(family, fit):
    outcome = fit(**{family: KINDS[family]})
    assert outcome.metrics != fit().metrics
    recorded = read_recipe({family: KINDS[family]}).model_dump()
    assert recorded[family]["code"].startswith("sha256-")
    assert read_recipe(recorded) == read_recipe({family: KINDS[family]})
    plugins.forget()
    name = next(iter(KINDS[family].values()))
    with pytest.raises(UserError, match=rf"has the {family} {name} \(sha256-\w+\): give its file with --plugin FILE"):
        read_recipe(recorded)


def test_a_kind_of_ones_own_is_an_option_of_a_space(family):
    key, name = next(iter(KINDS[family].items()))
    default = Recipe().model_dump()[family][key]
    options = f"{{choice: [{{{key}: {default}}}, {{{key}: {name}}}]}}" if family != "data" else f"{{{key}: {name}}}"
    text = f"format: 1\nrecipe:\n  {family}: {options}\n"
    space = parse_space(text, "mine.yaml")
    drawn = {getattr(getattr(read_recipe(space.suggest(RandomTrial(seed))), family), key) for seed in range(20)}
    assert drawn == ({name} if family == "data" else {default, name})
    plugins.forget()
    asks = rf"mine\.yaml:3: {family}(\[1\])?\.{key}={name}: there is .* One of your own is loaded from its file: --plugin FILE"
    with pytest.raises(UserError, match=asks):
        parse_space(text, "mine.yaml")


@pytest.mark.parametrize("family", FILES)
def test_a_kind_without_its_method_is_refused(family, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILES[family].replace("    def ", "    def not_"))
    with pytest.raises(UserError, match=r"mine\.py: \w+ has no method \w+\(self.*\): write it"):
        plugins.load([file])


def test_a_bundled_name_and_a_field_that_recipes_use_are_refused(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILES["optimizer"].replace("class Radam", "class Lion"))
    with pytest.raises(UserError, match=r"a recipe has optimizer\.lion already"):
        plugins.load([file])
    file.write_text(FILES["augmentation"].replace("    def", '    policy: str = "mine"\n\n    def', 1))
    with pytest.raises(UserError, match="Inverted has a field policy, which a recipe uses for itself"):
        plugins.load([file])


def test_a_kind_may_declare_its_name(tmp_path):
    file = tmp_path / "mine.py"
    text = FILES["loss"].replace("    def", '    name: Literal["squares"] = "squares"\n\n    def', 1)
    file.write_text(f"from typing import Literal\n{text}")
    plugins.load([file])
    assert "squares" in Recipe.kinds("loss")


def test_a_kind_may_be_derived_from_a_bundled_one(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from training.techniques.optimization.schedules import Cosine\n\n"
        "class Warm(Cosine):\n    def after_warmup(self, steps, warmup):\n        return lambda step: 0.5\n"
    )
    plugins.load([file])
    assert read_recipe({"schedule": {"name": "warm"}}).schedule.curve([4])(2) == 0.5
    assert read_recipe({"schedule": {"name": "cosine"}}).schedule.curve([4])(0) == 1.0


def test_the_same_file_in_the_folder_of_a_family_adds_a_bundled_kind(tmp_path, monkeypatch):
    (tmp_path / "inverse_sqrt.py").write_text(FILES["schedule"])
    folder = import_module("training.techniques.optimization")
    with monkeypatch.context() as patch:
        patch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
        Recipe.find_kinds()
    schedule = read_recipe({"schedule": KINDS["schedule"]}).schedule
    assert "code" not in schedule.model_dump()
    curve = schedule.curve([8, 8])
    assert [curve(4), curve(8), curve(16)] == [1.0, 0.5**0.5, 0.5]
    del sys.modules["training.techniques.optimization.inverse_sqrt"]


def test_kinds_are_listed_by_name():
    with pytest.raises(UserError, match="there is constant, cosine, cosine_restarts, linear, trapezoid"):
        parse_space("format: 1\nrecipe: {schedule: {name: x}}\n", "mine.yaml")


def test_loading_a_file_again_that_was_edited_replaces_its_kind(tmp_path):
    file = tmp_path / "mine.py"
    for rate in (0.01, 0.02):
        file.write_text(FILES["optimizer"].replace("0.01", str(rate)))
        plugins.load([file])
        assert read_recipe({"optimizer": {"name": "radam"}}).optimizer.lr == rate
    assert load_space("quick").baselines()
