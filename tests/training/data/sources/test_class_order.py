"""Classes are in natural order, as timm's readers number them; splits, digests and checkpoints of version 0.1.0 hold."""

import csv
import shutil
from itertools import count

import numpy as np
import pytest
import torch
from PIL import Image

from tests.training.data.sources.test_packed import write_parquet, write_tar
from training import plugins
from training.contract.specs import Data
from training.data.files import assembly
from training.data.files.images import ImageData, ImagePart, order_names
from training.data.identity import identify
from training.data.load_data import load_data
from training.data.sources.image_folder import ImageFolder
from training.data.sources.manifest import Manifest
from training.data.sources.parquet import Parquet
from training.data.sources.webdataset import WebDataset
from training.errors import UserError
from training.evaluate import load_same_data, predict_part, restore_model
from training.loop.checkpoint import read_checkpoint
from training.recipe import Recipe, read_recipe
from training.small_trainings import list_differences
from training.train import train

NUMBERS = tuple(map(str, range(12)))
AS_TEXT = ("0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9")
IMAGES = 10  # of each class


def paint(number, shade=0):
    """Return pixels whose grey level shows the number of the class; PPM files of them are the same everywhere."""
    return np.full((8, 8, 3), 20 * number + shade, np.uint8)


def number_of(image):
    return int(image[0, 0, 0]) // 20


@pytest.fixture
def folder(tmp_path):
    for name in NUMBERS:
        (tmp_path / "set" / name).mkdir(parents=True)
        for shade in range(IMAGES):
            Image.fromarray(paint(int(name), shade)).save(tmp_path / "set" / name / f"{shade}.ppm")
    return tmp_path / "set"


def make_folder(folder, **fields):
    return ImageFolder(root=str(folder), **fields)


def make_manifest(folder, **fields):
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        rows = [(f"{name}/{shade}.ppm", name) for name in NUMBERS for shade in range(IMAGES)]
        csv.writer(file).writerows([("path", "label"), *rows])
    return Manifest(path=str(folder / "table.csv"), **fields)


def list_files(folder):
    return [(folder / name / f"{shade}.ppm", int(name)) for shade in range(IMAGES) for name in NUMBERS]


def make_parquet(folder, **fields):
    rows = [(path.read_bytes(), number) for path, number in list_files(folder)]
    write_parquet(folder.parent / "packed" / "all.parquet", rows, names=None)
    return Parquet(root=str(folder.parent / "packed"), **fields)


def make_shards(folder, **fields):
    files = enumerate(list_files(folder))
    samples = [(f"{key:06}", path.read_bytes(), str(number).encode()) for key, (path, number) in files]
    write_tar(folder.parent / "shards" / "all.tar", samples)
    return WebDataset(root=str(folder.parent / "shards"), **fields)


@pytest.fixture
def make_own():
    names = count()

    def make(loaded):
        class Mine(Data):
            def load(self):
                return loaded

        plugins.register(Mine, f"sha256-{next(names)}", "mine.py")
        return read_recipe({"data": {"name": "mine"}}).data

    yield make
    Recipe.forget()


def pairs():
    return [(paint(number, shade), number) for shade in range(IMAGES) for number in range(12)]


def show(part):
    """Return the class and the number of each image, as they are painted."""
    return tuple((number_of(image), int(image[0, 0, 0]) % 20) for image in part.images)


# What version 0.1.0 made of these images, with all and with 20 images for training: `content` has labels, parts and order.
CONTENTS = {
    make_folder: ("cfcd275221b33266", "895870360754e75b"),
    make_manifest: ("5320d9de1c62cedd", "d74f3cd4249892a4"),
    make_parquet: ("f3537224b4bb2bd8", "4f13d69b3a2c93f7"),
    make_shards: ("f3537224b4bb2bd8", "4f13d69b3a2c93f7"),
}
OWN_DIGEST = "ca90711e6156f729"
# The class and the image of each of the folder's validation images, and of its 20 for training.
FIRST_VAL = (
    *((0, 2), (1, 3), (10, 1), (11, 8), (2, 0), (3, 6), (4, 2), (4, 4), (5, 4)),
    *((5, 7), (6, 4), (6, 9), (7, 0), (7, 9), (8, 4), (8, 7), (9, 0), (9, 4)),
)
FIRST_TRAIN = (
    *((0, 3), (0, 7), (1, 2), (1, 5), (10, 4), (10, 7), (11, 1), (11, 4), (2, 1), (2, 7)),
    *((3, 5), (3, 8), (4, 1), (4, 3), (5, 2), (5, 8), (6, 0), (7, 1), (8, 5), (9, 1)),
)


def assert_numbered(data):
    assert data.classes == NUMBERS
    for part in (data.train, data.val, data.test):
        assert [number_of(image) for image in part.images] == part.labels.tolist()
        assert part.labels.dtype == np.int64


@pytest.mark.parametrize("make", CONTENTS)
def test_a_number_from_zero_on_is_the_index_of_its_class(make, folder):
    assert_numbered(load_data(make(folder)))
    assert_numbered(load_data(make(folder, train_size=20)))


def test_numbers_of_data_of_ones_own_are_the_indices(make_own):
    assert_numbered(load_data(make_own(pairs())))


@pytest.mark.parametrize(("make", "known"), CONTENTS.items())
def test_the_split_and_the_digest_are_those_of_version_0_1_0(make, known, folder):
    specs = make(folder), make(folder, train_size=20)
    assert tuple(identify(load_data(spec), spec)["content"] for spec in specs) == known


def test_the_same_images_are_drawn_as_by_version_0_1_0(folder, make_own):
    data = load_data(make_folder(folder, train_size=20))
    assert (show(data.val), show(data.train)) == (FIRST_VAL, FIRST_TRAIN)
    own = make_own(pairs())
    assert identify(load_data(own), own)["digest"] == OWN_DIGEST


def test_the_digest_follows_a_class_that_is_renamed(folder):
    spec = make_folder(folder)
    first = identify(load_data(spec), spec)
    (folder / "2").rename(folder / "12")
    assert load_data(spec).classes == ("0", "1", *NUMBERS[3:], "12")
    assert identify(load_data(spec), spec)["content"] != first["content"]


def test_other_names_are_in_natural_order_as_timm_has_them():
    from timm.utils.misc import natural_key

    names = ("img10", "Img2", "img1", "Zebra", "apple", "7", "-1", "07", "x1y10", "x1y9", "", "é2", "٣")
    assert order_names(names) == tuple(sorted(sorted(names), key=natural_key))
    assert order_names(("b10", "b9", "B1")) == ("B1", "b9", "b10")
    assert order_names(("cat", "Cat", "01", "1")) == order_names(("1", "01", "Cat", "cat")) == ("01", "1", "Cat", "cat")
    assert order_names(("x²", "x10")) == ("x10", "x²")  # timm fails on a digit that is no decimal one


def test_classes_that_data_of_ones_own_have_numbered_keep_their_numbers(make_own):
    pixels = np.stack([paint(number) for number in (0, 1, 2)])
    part = ImagePart(np.arange(3), pixels)
    spec = make_own(ImageData("mine", ("10", "9", "a"), part, part, part))
    assert load_data(spec).classes == ("10", "9", "a")


def recipe_of(folder, **fields):
    """Return a recipe whose classes are drawn by their numbers, and whose head is trained on stored features first."""
    return read_recipe(
        {
            "data": {"name": "image_folder", "root": str(folder)},
            "backbone": {"name": "test_resnet", "weights": "none"},
            "epochs": 4,
            "batch_size": 16,
            "class_balance": {"name": "sampler"},
            "unfreeze": {"level": "last", "milestones": [2]},
            **fields,
        }
    )


def train_as_text(recipe, folder, on_report=lambda report: True, **options):
    """Train as version 0.1.0 did, which sorted the names of classes as text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "order_names", lambda names: tuple(sorted(names)))
        return train(recipe, folder, on_report=on_report, **options)


@pytest.mark.parametrize("options", [{}, {"release": True}], ids=["trial", "release"])
def test_a_training_goes_on_in_the_order_of_its_checkpoint(options, folder, tmp_path):
    recipe, whole_folder, cut_folder = recipe_of(folder), tmp_path / "whole", tmp_path / "cut"
    whole_folder.mkdir()
    cut_folder.mkdir()
    whole = train_as_text(recipe, whole_folder, **options)
    train_as_text(recipe, cut_folder, lambda report: report.epoch < 1, **options)
    for stop in (3, 9):  # the second time goes on from a checkpoint of this version
        cut = train(recipe, cut_folder, on_report=lambda report, stop=stop: report.epoch < stop, **options)
    assert list_differences(whole, whole_folder, cut, cut_folder) == []
    assert whole.classes == cut.classes == train(recipe, cut_folder, **options).classes == AS_TEXT
    assert read_checkpoint(cut_folder / "best.ckpt")["classes"] == list(AS_TEXT)


def test_a_training_that_begins_has_the_new_order(folder, tmp_path):
    recipe = recipe_of(folder, epochs=1, unfreeze={})
    outcome = train(recipe, tmp_path)
    assert outcome.classes == NUMBERS
    assert read_checkpoint(tmp_path / "best.ckpt")["classes"] == list(NUMBERS)


def test_a_model_of_version_0_1_0_is_scored_in_its_own_order(folder, tmp_path):
    outcome = train_as_text(recipe_of(folder, optimizer={"name": "adamw", "lr": 0.01}), tmp_path)
    saved = read_checkpoint(tmp_path / "best.ckpt")
    recipe = read_recipe(saved["recipe"])
    data = load_same_data(recipe, tuple(saved["classes"]))
    assert data.classes == AS_TEXT
    logits, labels = predict_part(restore_model(recipe, saved["state_dict"], 12), data.val, recipe)
    best = outcome.reports[outcome.reports[-1].best_epoch - 1]
    assert torch.nn.functional.cross_entropy(logits, labels).item() == pytest.approx(best.metrics["val_loss"], rel=1e-4)
    shutil.rmtree(folder / "2")
    with pytest.raises(UserError, match=r"not those of the training any more \(2 changed\)"):
        load_same_data(recipe, AS_TEXT)
