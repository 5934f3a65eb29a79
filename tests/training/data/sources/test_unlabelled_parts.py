"""A part without labels, as public data sets and competitions have one, is left out with a remark."""

from __future__ import annotations

import csv
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.training.data.sources.test_packed import rows, samples, sizes, write_parquet, write_tar
from training.data.inspection.remarks import list_remarks
from training.data.load_data import load_data
from training.data.sources.image_folder import ImageFolder
from training.data.sources.manifest import Manifest
from training.data.sources.parquet import Parquet
from training.data.sources.webdataset import WebDataset
from training.errors import UserError


def unlabelled_in(data):
    shorts = [remark.short for remark in list_remarks(data)]
    return [short.partition(" ")[0] for short in shorts if "has no labels and is left out" in short]


@pytest.mark.parametrize("label", [-1, None])
@pytest.mark.parametrize("arrow", [False, True])
def test_a_part_of_a_table_without_labels_is_left_out(label, arrow, tmp_path):
    ending = "arrow" if arrow else "parquet"
    write_parquet(tmp_path / f"train.{ending}", rows(20), arrow=arrow)
    for name in (f"test-0.{ending}", f"test-1.{ending}"):
        write_parquet(tmp_path / name, [(image, label) for image, _ in rows(6)], arrow=arrow)
    data = load_data(Parquet(root=str(tmp_path)))
    assert (sizes(data), data.classes, unlabelled_in(data)) == ([14, 3, 3], ("cat", "dog"), ["test"])
    without = load_data(Parquet(root=str(tmp_path), split_test=False))
    assert (sizes(without), unlabelled_in(without)) == ([16, 4, 0], ["test"])
    (remark,) = [each.sentence for each in list_remarks(without) if "no labels" in each.short]
    assert remark.endswith("There is no test part.")


@pytest.mark.parametrize(("label", "kind"), [("", pa.string()), (float("nan"), pa.float64()), (-1.0, pa.float64())])
def test_a_part_is_left_out_whatever_stands_for_no_label(label, kind, tmp_path):
    known = (lambda number: "abc"[number]) if kind == pa.string() else float
    write_parquet(
        tmp_path / "train.parquet", [(image, known(number)) for image, number in rows(20)], names=None, kind=kind
    )
    write_parquet(
        tmp_path / "valid.parquet", [(image, known(number)) for image, number in rows(6)], names=None, kind=kind
    )
    write_parquet(tmp_path / "test.parquet", [(image, label) for image, _ in rows(6)], names=None, kind=kind)
    data = load_data(Parquet(root=str(tmp_path)))
    assert (sizes(data), unlabelled_in(data)) == ([17, 6, 3], ["test"])
    assert data.classes == (("a", "b") if kind == pa.string() else ("0", "1"))


@pytest.mark.parametrize("label", [None, b"-1", b""])
def test_a_part_of_tar_files_without_labels_is_left_out(label, tmp_path):
    write_tar(tmp_path / "train-0.tar", samples(20))
    write_tar(tmp_path / "test-0.tar", [(key, image, label) for key, image, _ in samples(6)])
    data = load_data(WebDataset(root=str(tmp_path)))
    assert (sizes(data), unlabelled_in(data)) == ([14, 3, 3], ["test"])


def test_a_training_part_without_labels_is_refused(tmp_path):
    write_parquet(tmp_path / "train.parquet", [(image, -1) for image, _ in rows(6)])
    with pytest.raises(UserError, match="a row of .* has no label"):
        load_data(Parquet(root=str(tmp_path)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((0.0, 1.0), pa.float64()),
        ((0.0, 1.0), pa.float32()),
        ((Decimal("0"), Decimal("1")), pa.decimal128(5, 1)),
        ((False, True), pa.bool_()),
        ((0, 1), pa.uint8()),
    ],
)
def test_labels_that_are_whole_numbers_get_the_names_of_the_file(values, kind, tmp_path):
    write_parquet(tmp_path / "a.parquet", [(image, values[label]) for image, label in rows(20)], kind=kind)
    assert load_data(Parquet(root=str(tmp_path))).classes == ("cat", "dog")


def test_labels_that_are_bytes_are_read_as_text(tmp_path):
    pairs = [(image, (b"cat", b"dog")[label]) for image, label in rows(20)]
    write_parquet(tmp_path / "a.parquet", pairs, names=None, kind=pa.binary(), columns=("image", "label"))
    data = load_data(Parquet(root=str(tmp_path), image_column="image", label_column="label"))
    assert data.classes == ("cat", "dog")


@pytest.mark.parametrize(
    "folder", ["test", "Test", "testing", "test/unknown", "test/test", "test/images", "val", "val/unlabeled"]
)
def test_a_folder_of_loose_images_beside_train_is_left_out(folder, photos):
    data = load_data(ImageFolder(root=str(photos({"train/cat": 10, "train/dog": 10, folder: 4}))))
    assert (sizes(data), data.unused) == ([14, 3, 3], ())
    assert unlabelled_in(data) == ["val" if folder.startswith("val") else "test"]


def test_a_test_part_with_one_class_of_its_own_is_refused(photos):
    with pytest.raises(UserError, match="test has classes that train does not have: 'bird'"):
        load_data(ImageFolder(root=str(photos({"train/cat": 10, "train/dog": 10, "test/bird": 4}))))


@pytest.mark.parametrize("label", ["", "-1"])
def test_a_part_of_a_list_without_labels_is_left_out(label, photos, tmp_path):
    root = photos({"cat": 20, "dog": 20, "loose": 6})
    lines = [
        (str(path), label if path.parent.name == "loose" else path.parent.name, place)
        for number, path in enumerate(sorted(root.rglob("*.png")))
        for place in ["test" if path.parent.name == "loose" else "val" if number % 4 == 0 else "train"]
    ]
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label", "split"), *lines])
    data = load_data(Manifest(path=str(tmp_path / "list.csv")))
    assert (sizes(data), data.classes, unlabelled_in(data)) == ([26, 10, 4], ("cat", "dog"), ["test"])


def test_minus_one_is_a_class_if_training_has_it(photos, tmp_path):
    root = photos({"-1": 20, "1": 20})
    lines = [(str(path), path.parent.name) for path in sorted(root.rglob("*.png"))]
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *lines])
    assert load_data(Manifest(path=str(tmp_path / "list.csv"))).classes == ("1", "-1")
