"""The digest of the data changes if and only if the training data changes."""

import shutil
from dataclasses import replace

import numpy as np
from PIL import Image

from training.data.identity import identify
from training.data.load_data import load_data
from training.data.sources.digits import Digits
from training.data.sources.image_folder import ImageFolder


def test_the_digest_follows_images_labels_and_split():
    data, spec = load_data(Digits(train_size=64)), Digits(train_size=64)
    first = identify(data, spec)
    assert first["train_images"] == 64
    assert identify(load_data(spec), spec) == first
    assert identify(load_data(Digits(train_size=64, split_seed=1)), spec)["digest"] != first["digest"]
    brighter = replace(data.val, images=np.minimum(data.val.images + 1, 255).astype(np.uint8))
    assert identify(replace(data, val=brighter), spec)["digest"] != first["digest"]


def test_a_changed_file_changes_the_digest(tmp_path):
    for number in range(8):
        folder = tmp_path / ("cat" if number % 2 else "dog")
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    spec = ImageFolder(root=str(tmp_path))
    first = identify(load_data(spec), spec)
    assert first["source"] == str(tmp_path)
    assert identify(load_data(spec), spec) == first
    Image.new("RGB", (9, 9)).save(tmp_path / "cat" / "1.png")
    assert identify(load_data(spec), spec)["digest"] != first["digest"]


def test_the_content_is_the_same_elsewhere_also_with_a_file_that_is_missing(tmp_path):
    for number in range(8):
        folder = tmp_path / "here" / ("cat" if number % 2 else "dog")
        folder.mkdir(exist_ok=True, parents=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    here = ImageFolder(root=str(tmp_path / "here"))
    data = load_data(here)
    first = identify(data, here)["content"]
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = ImageFolder(root=str(tmp_path / "there"))
    assert identify(load_data(there), there)["content"] == first
    Image.new("RGB", (8, 8), (99, 0, 0)).save(tmp_path / "there" / "cat" / "1.png")
    assert identify(load_data(there), there)["content"] != first
    (tmp_path / "here" / "cat" / "1.png").unlink()
    assert identify(data, here)["content"] != first
