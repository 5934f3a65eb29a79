"""The digest of the data changes if and only if the training data changes."""

from dataclasses import replace

import numpy as np
from PIL import Image

from training.contract.specs import Digits, ImageFolder
from training.data.sources.identity import identify
from training.data.sources.load_data import load_data


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
