"""The kind of data in a folder: folders of classes come first, whatever lies beside them."""

from __future__ import annotations

import pytest

from search.cli.inspect.data_source import find_recipe
from tests.training.data.sources.test_packed import rows, samples, write_parquet, write_tar
from training.data.inspection.remarks import list_remarks
from training.data.load_data import kind_of, load_data

CLASSES = {"cat": 5, "dog": 5}
PARTS = {f"{part}/{name}": 5 for part in ("train", "val", "test") for name in ("cat", "dog")}


@pytest.mark.parametrize(
    ("counts", "other"),
    [
        (CLASSES, "photos.tar"),
        (CLASSES, "cat.tar.gz"),
        (CLASSES, "PHOTOS.TGZ"),
        (CLASSES, "train.parquet"),
        (CLASSES, "features.arrow"),
        (CLASSES, "photos.zip"),
        (CLASSES, "photos.tar.xz"),
        (CLASSES, "labels.csv"),
        (PARTS, "photos.tar"),
        (PARTS, "train/photos.tar"),
        (PARTS, "test/embeddings.parquet"),
        ({"Training set/cat": 5, "Training set/dog": 5}, "test.tar"),
        ({"cat/indoor": 5, "dog/outdoor": 5}, "a.parquet"),
    ],
)
def test_class_folders_with_images_win_and_the_other_file_is_named(counts, other, photos):
    root = photos(counts)
    (root / other).write_bytes(b"something else")
    assert kind_of(str(root)) == "image_folder"
    data = load_data(find_recipe(str(root), []).data)
    said = " ".join(remark.sentence for remark in list_remarks(data))
    assert data.classes == ("cat", "dog")
    assert f"'{other.rpartition('/')[2]}' lies beside the folders of images and is not read" in said


@pytest.mark.parametrize("other", ["cat/more.tar", "cat/deep/more.parquet"])
def test_an_archive_among_the_images_is_counted(other, photos):
    root = photos({"cat": 5, "cat/deep": 2, "dog": 5})
    (root / other).write_bytes(b"something else")
    assert kind_of(str(root)) == "image_folder"
    said = " ".join(remark.sentence for remark in list_remarks(load_data(find_recipe(str(root), []).data)))
    assert (
        f"1 file among the images is not read, because the format is not known: 1 .{other.rpartition('.')[2]}" in said
    )


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda root: write_tar(root / "a.tar", samples(20)), "webdataset"),
        (lambda root: write_tar(root / "train" / "a.tar.gz", samples(20)), "webdataset"),
        (lambda root: write_parquet(root / "a.parquet", rows(20)), "parquet"),
        (lambda root: write_parquet(root / "data" / "train.arrow", rows(20), arrow=True), "parquet"),
    ],
)
def test_packed_data_is_recognised_beside_a_picture_of_it(write, kind, photos):
    root = photos({"assets": 1, ".": 1})
    write(root)
    assert kind_of(str(root)) == kind
    assert load_data(find_recipe(str(root), []).data).name == kind


@pytest.mark.parametrize("strange", ["._a.tar", "#recycle/a.tar", "@Recycle/a.parquet", ".Trash-1000/a.arrow"])
def test_a_packed_file_that_a_system_made_does_not_decide(strange, photos):
    root = photos({"cat": 5})
    (root / strange).parent.mkdir(exist_ok=True)
    (root / strange).write_bytes(b"x")
    assert kind_of(str(root)) == "image_folder"
