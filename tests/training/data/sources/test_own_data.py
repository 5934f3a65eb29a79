"""Data of the user's own: `load` may return pairs, data sets in the form of torchvision, arrays or paths."""

from __future__ import annotations

from itertools import count

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import FakeData

from training import plugins
from training.contract.specs import Data
from training.data.files.images import ImageFiles
from training.data.identity import identify
from training.data.inspection.remarks import list_remarks
from training.data.load_data import load_data
from training.errors import UserError
from training.recipe import Recipe, read_recipe

NUMBERS = count()
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def nothing_of_ones_own_afterwards():
    yield
    Recipe.forget()


def load(found, **fields):
    """Return the data whose `load` returns this."""

    class Mine(Data):
        scale: float = 1.0

        def load(self):
            return found() if callable(found) else found

    plugins.register(Mine, f"sha256-{next(NUMBERS)}", "mine.py")  # as if the file had changed
    spec = read_recipe({"data": {"name": "mine", **fields}}).data
    return load_data(spec), spec


def pictures(number, side=lambda number: 16):
    return [RANDOM.integers(0, 256, (side(n), 16, 3), dtype=np.uint8) for n in range(number)]


def sizes(data):
    return [len(part) for part in (data.train, data.val, data.test)]


def test_a_pair_of_images_and_labels_is_split_in_proportion():
    images = pictures(40)
    data, _ = load((images, ["cat", "dog"] * 20))
    assert data.classes == ("cat", "dog")
    assert sizes(data) == [28, 6, 6]
    position = {image.tobytes(): n for n, image in enumerate(images)}
    for part in (data.train, data.val, data.test):
        assert [
            (image, label)
            for image, label in zip(part.images, part.labels, strict=True)
            if label != position[image.tobytes()] % 2
        ] == []
    assert sizes(load((images, ["cat", "dog"] * 20), train_size=10)[0]) == [10, 6, 6]


def test_a_data_set_in_the_form_of_torchvision_works_with_its_names_of_classes():
    fake = FakeData(60, (3, 20, 20), num_classes=3)
    fake.classes = ["c", "a", "b"]
    data, _ = load({"train": fake, "test": fake})
    assert data.classes == ("a", "b", "c")
    assert len(data.test) == 60
    first, label = fake[0]
    assert np.array_equal(data.test.images[0], np.asarray(first))
    assert data.classes[data.test.labels[0]] == fake.classes[int(label)]


def test_images_of_different_sizes_become_files_without_a_loss():
    images = pictures(20, side=lambda number: 10 + number)
    labels = ["a", "b"] * 10
    data, spec = load({"train": (images, labels), "test": (images, labels)})
    assert isinstance(data.test.images, ImageFiles)
    assert [
        (one, other) for one, other in zip(data.test.images, images, strict=True) if not np.array_equal(one, other)
    ] == []
    assert identify(data, spec)["source"] == "mine"


def test_paths_are_read_as_files(tmp_path):
    paths = []
    for number, image in enumerate(pictures(20, side=lambda number: 10 + number)):
        paths.append(str(tmp_path / f"{number}.png"))
        cv2.imwrite(paths[-1], image)
    data, _ = load((paths, ["a", "b"] * 10))
    assert sorted(path for part in (data.train, data.val, data.test) for path in part.images.paths) == sorted(paths)


def test_grey_and_pillow_images_become_red_green_blue():
    grey = [Image.fromarray(RANDOM.integers(0, 256, (16, 16), dtype=np.uint8)) for _ in range(20)]
    data, _ = load((grey, ["a", "b"] * 10))
    assert data.train.images.shape == (14, 16, 16, 3)


class Named:
    """A part in the form of torchvision, whose classes have names."""

    classes = ("cat", "dog")

    def __init__(self, labels):
        self.samples = list(zip(pictures(len(labels)), labels, strict=True))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


@pytest.mark.parametrize("blank", [-1, None, -1.0, "", float("nan"), np.int64(-1), torch.tensor(-1)], ids=repr)
@pytest.mark.parametrize("make", [Named, lambda labels: (pictures(len(labels)), labels)], ids=["named", "pair"])
def test_a_part_without_labels_is_left_out_with_a_remark(make, blank):
    data, _ = load({"train": make([0, 1] * 10), "val": make([0, 1] * 3), "test": make([blank] * 5)})
    assert sizes(data) == [17, 6, 3]
    assert data.classes in (("cat", "dog"), ("0", "1"))
    assert "test has no labels and is left out" in [remark.short for remark in list_remarks(data)]


def test_minus_one_is_a_label_where_training_images_have_it():
    data, _ = load({"train": (pictures(20), [-1, 1] * 10), "test": (pictures(4), [-1] * 4)})
    assert (sizes(data), data.classes) == ([17, 3, 4], ("1", "-1"))
    assert data.remarks == ()


def test_the_identity_changes_with_the_content():
    images = pictures(20)
    first, spec = load((images, ["a", "b"] * 10))
    again, _ = load((images, ["a", "b"] * 10), scale=2.0)
    other, _ = load((pictures(20), ["a", "b"] * 10), scale=3.0)
    digests = [identify(data, spec)["digest"] for data in (first, again, other)]
    assert digests[0] == digests[1] != digests[2]


def fail():
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (fail, "load raised KeyError: 'no such thing'"),
        (lambda: {"test": (pictures(4), ["a"] * 4)}, "load returns the parts test"),
        (lambda: {"train": (pictures(4), ["a"] * 4), "extra": ([], [])}, "load returns the parts train, extra"),
        (lambda: (pictures(4), ["a"] * 3), "load raised ValueError"),
        (lambda: (pictures(4), [0.5, 1.5] * 2), "load raised ValueError: the label 0.5 is not a whole number"),
        (lambda: (pictures(4), ["a"] * 4), "there is only one class, 'a'"),
        (lambda: ([*pictures(3), "a.png"], ["a", "b"] * 2), "load returns pixels for some images and paths for 1"),
        (lambda: ([image / 255 for image in pictures(4)], ["a", "b"] * 2), r"an image is float64 \(16, 16, 3\)"),
        (
            lambda: {"train": (pictures(9), ["a", "b", "c"] * 3), "val": (pictures(1), ["d"])},
            "val has classes that train",
        ),
    ],
)
def test_what_load_returns_is_checked_in_one_sentence(found, sentence):
    with pytest.raises(UserError, match=rf"^data\.name=mine: .*{sentence}") as caught:
        load(found)
    assert "\n" not in str(caught.value)


def test_a_name_of_bundled_data_is_refused():
    class Digits(Data):
        def load(self): ...

    with pytest.raises(UserError, match=r"a recipe has data\.digits already"):
        plugins.register(Digits, "sha256-0", "mine.py")


def test_other_recipes_do_not_name_the_data(tmp_path):
    before = Recipe().model_dump_json()
    load((pictures(20), ["a", "b"] * 10))
    assert Recipe().model_dump_json() == before
