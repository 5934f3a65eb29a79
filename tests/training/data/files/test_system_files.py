"""Thumbnails, bins and notes of network disks and systems are no images and no classes, wherever images are listed."""

from __future__ import annotations

import csv
import io
import os
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from training.data.files.system_files import is_system_path
from training.data.load_data import load_data
from training.data.sources.image_folder import ImageFolder
from training.data.sources.manifest import Manifest
from training.data.sources.parquet import Parquet
from training.data.sources.webdataset import WebDataset
from training.errors import UserError

# Where systems put copies of cat/000.png, and things that look like it.
STRANGE = [
    "cat/@eaDir/000.png/SYNOPHOTO_THUMB_M.png",
    "cat/SYNOPHOTO_THUMB_XL.jpg",
    "cat/@eaDir/000.png@SynoEAStream",
    "cat/000.png@SynoResource",
    "#recycle/000.png",
    "#recycle/cat/000.png",
    "#snapshot/hourly/cat/000.png",
    "@Recycle/cat/000.png",
    "cat/.@__thumb/default000.png",
    "cat/@__thumb/s800000.png",
    "@Recently-Snapshot/daily/cat/000.png",
    "Network Recycle Bin 1/000.png",
    "~snapshot/nightly/cat/000.png",
    "$RECYCLE.BIN/S-1-5-21/$R000.png",
    "System Volume Information/000.png",
    "cat/Thumbs.db:encryptable",
    "FOUND.000/FILE0000.png",
    "cat/000.png:Zone.Identifier",
    "cat/000.png\uf03aZone.Identifier",
    "__MACOSX/cat/._000.png",
    "cat/._000.png",
    "cat/:2e_000.png",
    "Network Trash Folder/000.png",
    ".Trashes/501/000.png",
    "cat/Icon\r",
    "lost+found/000.png",
    ".Trash-1000/files/000.png",
    "cat/.thumbnails/large/000.png",
]


def read_one(root):
    return (root / "cat" / "000.png").read_bytes()


def write_tar(file, root, paths):
    """Write images as samples of a tar file, each with its folder as its class."""
    with tarfile.open(file, "w") as archive:
        for path in paths:
            stem = path.rpartition(".")[0]
            content = read_one(root) if path in STRANGE else (root / path).read_bytes()
            label = None if path in STRANGE and not path.endswith("._000.png") else path.partition("/")[0].encode()
            for name, data in ((path, content), (f"{stem}.cls", label)):
                if data is None:
                    continue
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def describe(data):
    return data.classes, sum(map(len, (data.train, data.val, data.test))), data.not_read


@pytest.fixture
def names(photos):
    root = photos({"cat": 5, "dog": 5})
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.png"))


@pytest.mark.parametrize("strange", STRANGE)
def test_what_a_system_puts_into_a_folder_is_left_out(strange, photos, names):
    root = photos({})
    file = root.with_name("photos") / strange
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(read_one(root))
    assert describe(load_data(ImageFolder(root=str(root)))) == (("cat", "dog"), 10, ())


@pytest.mark.parametrize("strange", STRANGE)
def test_what_a_system_puts_into_a_tar_file_is_left_out(strange, photos, names, tmp_path):
    (tmp_path / "tars").mkdir()
    write_tar(tmp_path / "tars" / "a.tar", photos({}), [strange, *names])
    assert describe(load_data(WebDataset(root=str(tmp_path / "tars")))) == (("cat", "dog"), 10, ())


def test_what_a_system_puts_into_tables_is_left_out(photos, names, tmp_path):
    root = photos({})
    rows = [
        {"bytes": (read_one(root) if path in STRANGE else (root / path).read_bytes()), "path": path}
        for path in [*names, *STRANGE]
    ]
    rows.append({"bytes": b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X", "path": None})
    labels = [row["path"].partition("/")[0] if row["path"] in names else "cat" for row in rows]
    (tmp_path / "tables").mkdir()
    pq.write_table(pa.table({"image": rows, "label": labels}), tmp_path / "tables" / "a.parquet")
    assert describe(load_data(Parquet(root=str(tmp_path / "tables")))) == (("cat", "dog"), 10, ())
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *zip([*names, *STRANGE], labels, strict=False)])
    spec = Manifest(path=str(tmp_path / "list.csv"), root=str(root))
    assert describe(load_data(spec)) == (("cat", "dog"), 10, ())


def test_packed_files_that_are_hidden_or_in_a_bin_are_not_read(photos, names, tmp_path):
    for name in ("a.tar", "._a.tar", "#recycle/a.tar", ".ipynb_checkpoints/a.tar"):
        (tmp_path / "tars" / name).parent.mkdir(parents=True, exist_ok=True)
        write_tar(tmp_path / "tars" / name, photos({}), names)
    assert describe(load_data(WebDataset(root=str(tmp_path / "tars")))) == (("cat", "dog"), 10, ())


@pytest.mark.parametrize("name", ["recycled", "@home", "#1", "thumbs", "icon", "snapshot", "trash", "eaDir", "found.a"])
def test_classes_with_similar_names_are_classes(name, photos):
    data = load_data(ImageFolder(root=str(photos({name: 5, "zebra": 5}))))
    assert data.classes == tuple(sorted((name, "zebra")))


def test_data_may_lie_in_a_snapshot(photos, tmp_path):
    root = photos({"cat": 5, "dog": 5}, root=tmp_path / ".snapshot" / "hourly" / "photos")
    assert describe(load_data(ImageFolder(root=str(root)))) == (("cat", "dog"), 10, ())
    with (tmp_path / "list.csv").open("w", newline="") as file:
        listed = [(os.fspath(path), path.parent.name) for path in sorted(root.rglob("*.png"))]
        csv.writer(file).writerows([("path", "label"), *listed])
    assert describe(load_data(Manifest(path=str(tmp_path / "list.csv"), root=str(root)))) == (("cat", "dog"), 10, ())
    assert describe(load_data(Manifest(path=str(tmp_path / "list.csv"), root="/srv"))) == (("cat", "dog"), 10, ())
    with pytest.raises(UserError, match="no line below its header, except of thumbnails, bins or snapshots"):
        load_data(Manifest(path=str(tmp_path / "list.csv")))


@pytest.mark.parametrize(
    ("path", "root", "is_made"),
    [
        ("/data/img/@eaDir/x.jpg", "/data/img", True),
        ("/data/img/@eaDir/x.jpg", "/data/img/", True),
        ("/data/img/cat/x.jpg", "/data/img", False),
        ("/data/img2/@eaDir/x.jpg", "/data/img", False),  # outside the root
        ("/@eaDir/x.jpg", "/", True),
        ("@eaDir/x.jpg", "/data/img", True),
    ],
)
def test_only_folders_below_the_root_count(path, root, is_made):
    assert is_system_path(path, root) == is_made


def test_a_thumbnail_of_a_training_image_in_validation_is_named(tmp_path):
    from tests.training.data.inspection.test_near_copies import draw_scene, names_in

    for number in range(12):
        folder = tmp_path / ("train" if number % 2 else "val") / ("cat" if number % 4 < 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        draw_scene(number, 240).save(folder / f"{number:02}.jpg")
    for number, side in enumerate((24, 40, 80, 120), start=1):
        (tmp_path / "test" / "cat").mkdir(parents=True, exist_ok=True)
        small = draw_scene(number, 240).resize((side, side), Image.Resampling.LANCZOS)
        small.save(tmp_path / "test" / "cat" / f"small {number}.jpg")
    assert names_in(tmp_path) == [
        (f"small {n}.jpg", "test", f"{n:02}.jpg", "train" if n % 2 else "validation") for n in (1, 2, 3, 4)
    ]
