"""A policy from a file of Albumentations: part of the recipe, seeded, and refused in one sentence when it cannot be used."""

from __future__ import annotations

import json

import albumentations as A
import numpy as np
import pytest

from search.arguments import absolute_paths
from spaces.load import dump_recipe, load_recipe, load_space
from training.data.load_data import load_data
from training.errors import UserError
from training.recipe import read_recipe
from training.resolve import resolve_recipe

PIPELINE = A.Compose(
    [A.OneOf([A.GaussianBlur(p=1.0), A.Sequential([A.Solarize(p=1.0)])], p=0.7), A.CoarseDropout(p=0.5)]
)


@pytest.fixture
def resolve(tmp_path, tiny_recipe):
    def run(pipeline, suffix=".json", **fields):
        path = tmp_path / f"mine{suffix}"
        A.save(pipeline, path, data_format=suffix.strip(".").replace("yml", "yaml"))
        recipe = tiny_recipe(augmentation={"policy": "file", "path": str(path), **fields})
        return resolve_recipe(recipe, load_data(recipe.data), "cpu")

    return run


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_the_files_content_becomes_part_of_the_recipe_and_survives_its_file(suffix, resolve, tmp_path):
    recipe = resolve(PIPELINE, suffix)
    assert json.loads(recipe.augmentation.pipeline) == json.loads(json.dumps(A.to_dict(PIPELINE)))
    assert recipe.augmentation.backend == "albumentations"
    (tmp_path / f"mine{suffix}").unlink()
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe))
    again = load_recipe(tmp_path / "recipe.yaml")
    assert resolve_recipe(again, load_data(again.data), "cpu") == recipe


def test_the_pipeline_changes_the_training_and_a_resume_gives_the_same_numbers(fit, resolve, tmp_path):
    augmentation = resolve(PIPELINE).augmentation.model_dump()
    whole, plain = fit(epochs=3, augmentation=augmentation), fit(epochs=3)
    assert whole.metrics != plain.metrics
    folder = tmp_path / "stopped"
    folder.mkdir()
    fit(folder=folder, epochs=3, augmentation=augmentation, on_report=lambda report: report.epoch < 2)
    assert fit(folder=folder, epochs=3, augmentation=augmentation).metrics == whole.metrics


def test_a_single_transform_is_a_pipeline_too(fit, resolve):
    assert fit(epochs=1, augmentation=resolve(A.HorizontalFlip(p=1.0)).augmentation.model_dump()).state == "completed"


def test_validation_images_are_left_alone(resolve):
    from training.data.pipelines.loaders import make_loaders

    black = resolve(A.Compose([A.Solarize(threshold_range=(0, 0), p=1.0)]))
    data = load_data(black.data)
    loaders, plain = (make_loaders(data, recipe, workers=0) for recipe in (black, resolve(A.NoOp())))
    for name, differ in (("train", True), ("val", False)):
        one, other = (next(iter(getattr(each, name)))[0] for each in (loaders, plain))
        assert (not np.allclose(one, other)) == differ, name


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            A.Compose([A.RandomCrop(8, 8)]),
            r"turns an image of 16×16 in uint8 into uint8 of shape \(8, 8, 3\)\. Leave out",
        ),
        # Steps that the check would hardly draw.
        (A.Compose([A.RandomCrop(8, 8, p=1e-6)]), r"into uint8 of shape \(8, 8, 3\)\. Leave out"),
        (
            A.Compose([A.OneOf([A.NoOp(), A.Sequential([A.RandomCrop(8, 9, p=1e-6)], p=1e-6)], p=1e-6)]),
            r"into uint8 of shape \(8, 9, 3\)",
        ),
        (A.Compose([A.Normalize()]), r"into float32 of shape \(16, 16, 3\)"),
        (
            "transform: {__class_fullname__: Nope}",
            r"does not work \(KeyError: 'Nope'\)\. Write it with albumentations\.save",
        ),
        ("[1, 2", r"cannot be read \(.*\)\. Write it with"),
        (None, r"mine\.yaml: cannot be read \(FileNotFoundError"),
    ],
)
def test_a_pipeline_that_cannot_be_used_gives_one_sentence(content, words, tmp_path, tiny_recipe):
    path = tmp_path / "mine.yaml"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        A.save(content, path, data_format="yaml")
    recipe = tiny_recipe(augmentation={"policy": "file", "path": str(path)})
    with pytest.raises(UserError, match=words) as caught:
        resolve_recipe(recipe, load_data(recipe.data), "cpu")
    assert "\n" not in str(caught.value)


def test_a_step_that_cannot_happen_or_whose_size_is_restored_is_no_fault(resolve):
    resolve(A.Compose([A.RandomCrop(8, 8, p=0.0)]))
    resolve(A.Compose([A.RandomCrop(8, 8, p=1e-6), A.Resize(16, 16)]))


def test_an_image_whose_size_changes_in_the_middle_of_a_training_is_resized_with_a_warning(fit, resolve, caplog):
    # Each step of the check happens, so the border hides the crop from it.
    rare = A.Compose([A.RandomCrop(8, 8, p=0.05), A.PadIfNeeded(16, 16, p=0.05)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.techniques.data.augmentation_file.TRIED", 1)
        augmentation = resolve(rare).augmentation.model_dump()
        assert fit(epochs=1, augmentation=augmentation).state == "completed"
    assert "The augmentation policy file made an image 8×8, not 16×16. Such images are resized" in caplog.text


def test_a_file_needs_a_path_and_albumentations():
    with pytest.raises(UserError, match=r"policy=file needs augmentation\.path"):
        read_recipe({"augmentation": {"policy": "file"}})
    with pytest.raises(UserError, match=r"backend=dali cannot do policy=file.*albumentations or auto"):
        read_recipe({"augmentation": {"policy": "file", "path": "a.yaml", "backend": "dali"}})


def test_a_sweep_copies_the_file_into_its_space(tmp_path):
    A.save(PIPELINE, tmp_path / "mine.json")
    option = f"{{policy: file, path: {tmp_path / 'mine.json'}}}"
    space = absolute_paths(load_space("quick", [f"augmentation={{choice: [{{policy: none}}, {option}]}}"]))
    (tmp_path / "mine.json").unlink()
    (tmp_path / "space.yaml").write_text(space.to_yaml())
    none, from_file = load_space(tmp_path / "space.yaml").recipe["augmentation"].options
    assert none == {"policy": "none"}
    assert json.loads(from_file["pipeline"])["transform"]["__class_fullname__"] == "Compose"
