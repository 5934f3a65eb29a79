"""Techniques from the user's own files and packages take part in recipes, and are recorded with a hash."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError, create_model

from training import plugins
from training.errors import UserError
from training.features.use import find_obstacle
from training.loop.job import TrainingJob
from training.process.resources import ONE_CPU
from training.recipe import AnyRecipe, Recipe, read_recipe

FILE = """
from pydantic import Field
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.techniques.data.mixup import MixUp

__version__ = "1.0"


class InputNoise(Technique):
    strength: float = Field(0.0, ge=0, le=1)

    def apply(self, setup: TrainingSetup) -> None:
        setup.batch_transforms.append(lambda images, labels: (images + self.strength * torch.randn_like(images), labels))

    def conflict(self, recipe):
        return "input_noise does not go with mixup." if self.is_on and recipe.mixup.is_on else None


import torch
"""
WATCH = """
import torch
from lightning.pytorch import Callback
from training.contract.technique import Technique


class Watch(Technique):
    enabled: bool = False

    def apply(self, setup):
        class Norms(Callback):
            def on_before_optimizer_step(self, trainer, module, optimizer):
                gradients = [p.grad for p in module.model.parameters() if p.grad is not None]
                self.norm = float(torch.nn.utils.get_total_norm(gradients))

            def state_dict(self):
                return {"norm": self.norm}

        setup.callbacks.append(Norms())
"""
ON = {"input_noise": {"strength": 0.3}}


@pytest.fixture(autouse=True)
def only_bundled_techniques_afterwards():
    yield
    plugins.forget()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "input_noise.py"
    path.write_text(FILE)
    return path


def test_a_technique_of_ones_own_takes_part_in_recipes(file):
    before = Recipe()
    plugins.load([file])
    assert [type(technique).__name__ for technique in read_recipe(ON).techniques()] == ["InputNoise"]
    assert list(Recipe().techniques()) == []
    assert Recipe().model_dump() == before.model_dump()  # off, it is not named
    assert Recipe().flat()["input_noise.strength"] == 0.0
    with pytest.raises(UserError, match=r"input_noise\.strength=2\.0: input should be less than or equal to 1"):
        read_recipe({"input_noise": {"strength": 2.0}})
    with pytest.raises(UserError, match="input_noise does not go with mixup"):
        read_recipe({**ON, "mixup": {"alpha": 0.4}})


def test_a_technique_of_ones_own_changes_the_training(file, fit, load_weights):
    plugins.load([file])
    without, noisy = load_weights(fit().folder), load_weights(fit(**ON).folder)
    assert [name for name in without if name.endswith("conv1.weight") and torch.equal(without[name], noisy[name])] == []


def test_features_are_stored_beside_an_own_technique_that_keeps_them(file):
    head_only = {**ON, "unfreeze": {"level": "last"}}
    plugins.load([file])
    assert "input_noise is not bundled" in find_obstacle(read_recipe(head_only))
    file.write_text(FILE.replace("(Technique):\n", "(Technique):\n    keeps_features = True\n"))
    plugins.load([file])
    assert find_obstacle(read_recipe(head_only)) is None


def test_a_callback_sees_gradients_before_they_are_clipped(tmp_path, fit):
    path = tmp_path / "watch.py"
    path.write_text(WATCH)
    plugins.load([path])
    folder = fit(watch={"enabled": True}, gradient_clipping={"value": 1e-6}, epochs=1).folder
    saved = torch.load(folder / "last.ckpt", weights_only=True)["callbacks"]
    assert saved["Watch.apply.<locals>.Norms"]["norm"] > 1e-3


def test_a_recipe_records_version_and_hash_and_cannot_be_read_without_the_file(file):
    plugins.load([file])
    recorded = read_recipe(ON).model_dump_json()
    assert json.loads(recorded)["input_noise"]["code"].startswith("1.0 sha256-")
    assert Recipe.model_validate_json(recorded) == read_recipe(ON)
    plugins.forget()
    with pytest.raises(
        UserError, match=r"has the technique input_noise \(1\.0 sha256-\w+\): give its file with --plugin"
    ):
        Recipe.model_validate_json(recorded)


def test_other_models_read_and_write_what_recipes_have_now(file):
    """They are made before a plugin is loaded, and pydantic copies the fields of that time."""
    other = create_model("Other", recipe=AnyRecipe)
    plugins.load([file])
    written = other(recipe=read_recipe(ON)).model_dump_json()
    assert json.loads(written) == {"recipe": read_recipe(ON).model_dump(mode="json")}
    assert other.model_validate_json(written).recipe == read_recipe(ON)
    with pytest.raises(ValidationError) as caught:
        other.model_validate({"recipe": {"input_noise": {"strength": 2.0}}})
    assert caught.value.errors()[0]["loc"] == ("recipe", "input_noise", "strength")


def test_another_version_of_a_recorded_technique_is_refused(file):
    plugins.load([file])
    recorded = read_recipe(ON).model_dump()
    file.write_text(FILE.replace("1.0", "1.1"))
    plugins.load([file])  # the file was edited in the same process
    with pytest.raises(UserError, match=r"\(1\.0 sha256-\w+\), and the one that is loaded is another .*\(1\.1 sha256-"):
        read_recipe(recorded)
    del recorded["input_noise"]["code"]
    assert read_recipe(recorded).input_noise.strength == 0.3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\n", "it has no class derived from Data, .* or Technique"),
        ("x = 1\ndef f(:\n", r"line 2 is not Python \(invalid syntax\)"),
        ("import nothing_here\n", "line 1 raised ModuleNotFoundError: No module named 'nothing_here'"),
        ("\nraise SystemExit(3)\n", "line 2 raised SystemExit: 3"),
        (FILE.replace("InputNoise", "LabelSmoothing"), "a recipe has label_smoothing already"),
        (FILE.replace("InputNoise", "Epochs"), "a recipe has epochs already"),
        (FILE.replace("Field(0.0, ", "Field("), "InputNoise has no default for strength"),
        (
            FILE.replace("strength: float", "code: float").replace("self.strength", "self.code"),
            "InputNoise has a field code",
        ),
        (FILE.replace("def apply", "def applied"), "InputNoise has no method apply"),
        ("from training.techniques.data.mixup import MixUp\n", "it has no class derived from"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.py"
    path.write_text(text)
    before = set(Recipe.model_fields)
    with pytest.raises(UserError, match=rf"--plugin=.*mine\.py: {sentence}") as caught:
        plugins.load([path])
    assert "\n" not in str(caught.value)
    assert set(Recipe.model_fields) == before


def test_a_file_that_does_not_exist_or_is_no_text_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"gone\.py: the file cannot be read \(No such file"):
        plugins.load([tmp_path / "gone.py"])
    os.mkfifo(tmp_path / "pipe.py")
    for path in (tmp_path, tmp_path / "pipe.py"):
        with pytest.raises(UserError, match=rf"--plugin={path}: this is not a file"):
            plugins.load([path])
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text in UTF-8"):
        plugins.load([tmp_path / "bytes.py"])


def test_two_files_with_the_same_technique_are_refused(file, tmp_path):
    (tmp_path / "other.py").write_text(FILE + "# another\n")
    plugins.load([file, file])
    with pytest.raises(UserError, match=r"other\.py: input_noise is loaded from .*input_noise\.py already"):
        plugins.load([tmp_path / "other.py"])


def test_another_process_gets_the_techniques_with_the_job(file, tmp_path):
    plugins.load([file])
    job = TrainingJob(read_recipe(ON), tmp_path, "val_accuracy", ONE_CPU, release=False)
    file.unlink()  # the other machine does not have it
    code = (
        "import json, sys; from training.loop.job import TrainingJob;"
        "job = TrainingJob.from_json(json.load(sys.stdin)); print([type(t).__name__ for t in job.recipe.techniques()])"
    )
    told = json.dumps(job.to_json())
    run = subprocess.run([sys.executable, "-c", code], input=told, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['InputNoise']"


def test_a_package_adds_a_technique_by_its_entry_point(tmp_path, monkeypatch):
    (tmp_path / "noise_package.py").write_text(FILE)
    info = tmp_path / "noise_package-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noise-package\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text("[technique_search.techniques]\nnoise = noise_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load()
    assert read_recipe(ON).model_dump()["input_noise"]["code"].startswith("2.5 sha256-")


def test_a_package_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    info = tmp_path / "broken_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[technique_search.techniques]\nx = broken_package_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="installed package broken-package has a part that cannot be imported"):
        plugins.load()
