"""Images inside Parquet, Arrow and tar files are split, checked and identified like image files."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from platformdirs import user_cache_dir

from training.data.files.check import check_images
from training.data.identity import identify
from training.data.load_data import load_data
from training.data.sources.parquet import Parquet
from training.data.sources.webdataset import WebDataset
from training.errors import UserError

NAMES = ["cat", "dog"]


def draw(label, number, ending=".jpg"):
    """Return the bytes of a picture that is red for a cat and blue for a dog."""
    pixels = np.full((40 + number, 48, 3), 30, np.uint8)
    pixels[..., 2 - 2 * label] = 220
    return cv2.imencode(ending, pixels)[1].tobytes()


def write_parquet(path, rows, names=NAMES, columns=("image", "label"), arrow=False, kind=None):
    """Write rows of bytes and label in the form of `datasets`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    label_type = kind or (pa.int64() if names or not rows or isinstance(rows[0][1], int) else pa.string())
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {columns[0]: {"_type": "Image"}}
    features[columns[1]] = {"_type": "ClassLabel", "names": names} if names else {"_type": "Value"}
    schema = pa.schema([(columns[0], kind), (columns[1], label_type)])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    images = [{"bytes": content, "path": "somewhere/else.jpg"} for content, _ in rows]
    table = pa.table([pa.array(images, kind), pa.array([label for _, label in rows], label_type)], schema=schema)
    if arrow:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
            stream.write_table(table)
    else:
        pq.write_table(table, path)


def write_tar(path, samples):
    """Write samples of key, bytes and label in the form of WebDataset."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for key, content, label in samples:
            for name, data in ((f"{key}.jpg", content), (f"{key}.json", b"{}"), (f"{key}.cls", label)):
                if data is not None:
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def rows(count, start=0):
    return [(draw(n % 2, n % 7), n % 2) for n in range(start, start + count)]


def samples(count, start=0):
    return [(f"{n:06}", draw(n % 2, n % 7), str(n % 2).encode()) for n in range(start, start + count)]


def sizes(data):
    return [len(part) for part in (data.train, data.val, data.test)]


def assert_labels_fit_the_colours(data):
    for part in (data.train, data.val, data.test):
        for image, label in zip(part.images, part.labels, strict=True):
            assert image[0, 0].argmax() == (0, 2)[label]  # red, green, blue


@pytest.mark.parametrize("arrow", [False, True])
def test_rows_of_parquet_and_arrow_files_are_split_in_proportion(arrow, tmp_path):
    ending = "arrow" if arrow else "parquet"
    for number in range(2):
        write_parquet(tmp_path / f"data-{number:05}-of-00002.{ending}", rows(20, 20 * number), arrow=arrow)
    data = load_data(Parquet(root=str(tmp_path)))
    assert data.classes == ("cat", "dog")
    assert sizes(data) == [28, 6, 6]
    assert_labels_fit_the_colours(data)
    check_images(data)


def test_parts_are_taken_from_the_names_of_files(tmp_path):
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", rows(20))
    write_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", rows(6, 20))
    data = load_data(Parquet(root=str(tmp_path)))
    assert sizes(data) == [17, 6, 3]  # the test split is split off
    write_tar(tmp_path / "shards" / "pets-train-000000.tar", samples(20))
    write_tar(tmp_path / "shards" / "pets-val-000000.tar", samples(6, 20))
    write_tar(tmp_path / "shards" / "test" / "000000.tar", samples(4, 30))
    assert sizes(load_data(WebDataset(root=str(tmp_path / "shards")))) == [20, 6, 4]


@pytest.mark.parametrize("name", ["pets-000000.tar", "pets-000000.tar.gz"])
def test_samples_of_tar_files_are_pairs_of_image_and_label(tmp_path, name):
    write_tar(tmp_path / name, samples(20))
    data = load_data(WebDataset(root=str(tmp_path)))
    assert data.classes == ("0", "1")
    assert sizes(data) == [14, 3, 3]
    assert_labels_fit_the_colours(data)


def test_columns_with_other_names_are_found_or_chosen(tmp_path):
    write_parquet(tmp_path / "a.parquet", [(draw(0, n), "cat") for n in range(4)] + [(draw(1, n), "dog") for n in range(4)],
                  names=None, columns=("img", "target"))  # fmt: skip
    assert load_data(Parquet(root=str(tmp_path))).classes == ("cat", "dog")
    assert load_data(Parquet(root=str(tmp_path), label_column="target")).classes == ("cat", "dog")
    with pytest.raises(UserError, match=r"has the columns img, target, and data\.label_column=kind does not name one"):
        load_data(Parquet(root=str(tmp_path), label_column="kind"))
    with pytest.raises(UserError, match=r"data\.image_column=target does not name one that fits"):
        load_data(Parquet(root=str(tmp_path), image_column="target"))


def test_the_identity_does_not_change_when_the_images_are_unpacked_again(tmp_path):
    spec = WebDataset(root=str(tmp_path))
    write_tar(tmp_path / "a.tar", samples(20))
    before = identify(load_data(spec), spec)
    shutil.rmtree(Path(user_cache_dir("technique-search")) / "unpacked")
    assert identify(load_data(spec), spec) == before
    write_tar(tmp_path / "a.tar", samples(22))
    assert identify(load_data(spec), spec)["digest"] != before["digest"]


def test_images_are_unpacked_once(tmp_path, monkeypatch):
    write_tar(tmp_path / "a.tar", samples(20))
    load_data(WebDataset(root=str(tmp_path)))
    monkeypatch.setattr(tarfile, "open", lambda *arguments: pytest.fail("it is unpacked already"))
    load_data(WebDataset(root=str(tmp_path), split_seed=1))


def test_an_archive_cannot_write_outside_the_cache_folder(tmp_path):
    write_tar(tmp_path / "tars" / "a.tar", [(f"../../{key}", *rest) for key, *rest in samples(20)])
    with tarfile.open(tmp_path / "tars" / "b.tar", "w") as archive:
        link = tarfile.TarInfo("000.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert sizes(load_data(WebDataset(root=str(tmp_path / "tars")))) == [14, 3, 3]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tar", "b.tar", "tars"]


def test_an_unreadable_image_is_named_or_skipped(tmp_path):
    write_tar(tmp_path / "a.tar", [*samples(20), ("999", b"no image", b"1")])
    with pytest.raises(UserError, match="this image cannot be read"):
        check_images(load_data(WebDataset(root=str(tmp_path))))
    data = load_data(WebDataset(root=str(tmp_path), skip_unreadable=True))
    check_images(data)
    assert len(data.left_out) == 1


def assert_nothing_is_unfinished():
    assert not list((Path(user_cache_dir("technique-search")) / "unpacked").glob("*.tmp"))


def cut_before(path, name, kept=0, rest=b""):
    """Write a tar file that ends before a member, or after some bytes of its header."""
    write_tar(path, samples(20))
    content = path.read_bytes()
    path.write_bytes(content[: content.index(name) + kept] + rest)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: None, r"the folder has no \.tar or \.tar\.gz or \.tgz file"),
        (
            lambda root: write_tar(root / "a.tar", [("1", draw(0, 1), None)]),
            r"sample 1 of .*a\.tar has 1 images and 0 \.cls",
        ),
        (lambda root: write_tar(root / "a.tar", [("1", draw(0, 1), b" ")]), r"1\.cls in .*a\.tar is empty"),
        (
            lambda root: (write_tar(root / "a.tar", samples(20)), cut(root / "a.tar")),
            r"a\.tar (is not a complete|has 1 images)",
        ),
        (lambda root: (root / "a.tar").write_bytes(b"no tar" * 200), "is not a complete tar file"),
        (lambda root: (root / "a.tar").write_bytes(b""), r"is not a complete tar file \(empty"),
        (lambda root: cut_before(root / "a.tar", b"000006.jpg"), r"is not a complete tar file \(empty header at byte"),
        (lambda root: cut_before(root / "a.tar", b"000006.jpg", 100), r"\(truncated header at byte"),
        (lambda root: cut_before(root / "a.tar", b"000006.jpg", 100, b"\xff" * 2000), r"\(bad checksum at byte"),
        (
            lambda root: write_tar(root / "a.tar", [(str(n), *samples(1)[0][1:]) for n in range(4)]),
            "there is only one class, '0'",
        ),
        (
            lambda root: (write_tar(root / "train.tar", samples(9)), write_tar(root / "rest.tar", samples(9))),
            r"rest\.tar names no part, and other files do",
        ),
    ],
)
def test_tar_files_that_cannot_be_used_are_refused(make, sentence, tmp_path):
    make(tmp_path)
    with pytest.raises(UserError, match=rf"^data\.root=.*{sentence}"):
        load_data(WebDataset(root=str(tmp_path)))
    assert_nothing_is_unfinished()


def write_entries(path, entries):
    """Write files of these names and contents into a tar file."""
    with tarfile.open(path, "w") as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def entries_of(names, label=lambda number: str(number % 2).encode()):
    """Return an image and a label for each name, which has a hole for the ending."""
    found = [(name, draw(number % 2, number % 7), label(number)) for number, name in enumerate(names)]
    return [entry for name, image, text in found for entry in ((name.format("jpg"), image), (name.format("cls"), text))]


@pytest.mark.parametrize(
    "names",
    [
        [f"img.{n}.{{}}" for n in range(20)],
        [f"{n}.v2.{{}}" for n in range(20)],
        [f"2024.11.{n:02}.{{}}" for n in range(20)],
        [f"IMG_{n // 4}.{n % 4}.{{}}" for n in range(20)],
        [f"{n:03}.{{}}" if n < 9 else f"{n:03}.b.{{}}" for n in range(20)],
        [f"train.{n % 2}/img.{n}.{{}}" for n in range(20)],
        [f"./cat.{n}.{{}}" for n in range(20)],
        [f"photo...{n}.{{}}" for n in range(20)],
    ],
)
def test_names_with_dots_are_paired_by_the_last_dot_if_that_pairs_all(names, tmp_path):
    write_entries(tmp_path / "a.tar", entries_of(names))
    data = load_data(WebDataset(root=str(tmp_path)))
    assert sizes(data) == [14, 3, 3]
    assert_labels_fit_the_colours(data)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            [("img.20.jpg", b"x")],
            r"the sample img of .*a\.tar has 21 images and 0 \.cls files \(img\.0\.jpg, img\.0\.cls, ",
        ),
        ([("b.1.jpg", b"x"), ("b.1.mask.jpg", b"x"), ("b.1.cls", b"0")], "has 20 images and 0"),
    ],
)
def test_names_with_dots_that_cannot_be_paired_are_named_with_the_rule(more, sentence, tmp_path):
    write_entries(tmp_path / "a.tar", [*entries_of([f"img.{n}.{{}}" for n in range(20)]), *more])
    with pytest.raises(UserError, match=rf"{sentence}.*the same name up to its first dot"):
        load_data(WebDataset(root=str(tmp_path)))
    assert_nothing_is_unfinished()


def test_other_files_of_a_sample_do_not_matter(tmp_path):
    more = [(f"{n}.{ending}", b"1") for n in range(20) for ending in ("json", "mask.cls", "txt")]
    write_entries(tmp_path / "a.tar", sorted([*entries_of([f"{n}.{{}}" for n in range(20)]), *more]))
    assert sizes(load_data(WebDataset(root=str(tmp_path)))) == [14, 3, 3]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: (root / "a.parquet").write_bytes(b"PAR1 but no more"), r"a\.parquet cannot be read"),
        (lambda root: (root / "a.arrow").write_bytes(b"no arrow"), r"a\.arrow cannot be read"),
        (
            lambda root: write_parquet(root / "a.parquet", [(None, 0), (None, 1)]),
            "a row of .* has no bytes of an image",
        ),
        (
            lambda root: write_parquet(root / "a.parquet", [*rows(20), (draw(0, 1), -1)]),
            "has no label .-1., and others of its part have one.*a number from 0 on that no other has",
        ),
        (
            lambda root: write_parquet(root / "test.parquet", rows(9)),
            "its files are those of test, and it has no train",
        ),
        (
            lambda root: write_parquet(
                root / "a.parquet", [(row[0], 0.5) for row in rows(9)], names=None, kind=pa.float64()
            ),
            r"a label of .* is 0\.5, neither a whole number nor a text",
        ),
        (
            lambda root: write_parquet(root / "a.parquet", rows(9), columns=("image", "kind"), names=None),
            "data.label_column",
        ),
    ],
)
def test_parquet_files_that_cannot_be_used_are_refused(make, sentence, tmp_path):
    make(tmp_path)
    with pytest.raises(UserError, match=rf"^data\.root=.*{sentence}") as caught:
        load_data(Parquet(root=str(tmp_path)))
    assert "\n" not in str(caught.value)
    assert_nothing_is_unfinished()


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"data\.root=.*gone: no such folder"):
        load_data(Parquet(root=str(tmp_path / "gone")))


def test_packed_images_train_with_each_backend(tmp_path, fit):
    write_tar(tmp_path / "a.tar", samples(24))
    for backend in ("tensor", "albumentations", "dali"):
        outcome = fit(
            data={"name": "webdataset", "root": str(tmp_path)},
            preprocessing={"image_size": 32},
            batch_size=8,
            epochs=1,
            flip={"probability": 0.5},
            augmentation={"policy": "none", "backend": backend},
        )
        assert outcome.state == "completed"
