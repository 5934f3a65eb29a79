import logging
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from training.data.files.listing import EXTENSIONS, find_files
from training.data.identity import identify
from training.data.inspection.remarks import list_remarks
from training.data.load_data import absolute, load_data
from training.data.sources.image_folder import ImageFolder
from training.errors import UserError


def load(root, **fields):
    return load_data(ImageFolder(root=str(root), **fields))


def names(part):
    return sorted(os.path.relpath(path).split(os.sep)[-2] + "/" + os.path.basename(path) for path in part.images.paths)


def test_a_folder_without_parts_is_split_70_15_15(photos):
    data = load(photos({"dog": 40, "cat": 60}))
    assert data.classes == ("cat", "dog")
    assert [len(part) for part in (data.train, data.val, data.test)] == [70, 15, 15]
    assert np.bincount(data.val.labels).tolist() == [9, 6]
    assert len({*names(data.train), *names(data.val), *names(data.test)}) == 100
    assert load(photos({"dog": 40, "cat": 60})).val.images.paths == data.val.images.paths


def test_labels_are_positions_among_the_sorted_names(photos):
    data = load(photos({"b": 5, "a": 5, "C": 5}))
    assert data.classes == ("a", "b", "C")
    for part in (data.train, data.val, data.test):
        folders = [os.path.basename(os.path.dirname(path)) for path in part.images.paths]
        assert [data.classes[label] for label in part.labels] == folders


@pytest.mark.parametrize("val_name", ["val", "valid", "validation"])
def test_parts_that_exist_are_used_as_they_are(photos, val_name):
    root = photos({"train/cat": 10, "train/dog": 10, f"{val_name}/cat": 4, "test/dog": 3})
    data = load(root)
    assert [len(part) for part in (data.train, data.val, data.test)] == [20, 4, 3]
    assert set(data.val.labels) == {0}
    assert set(data.test.labels) == {1}


def test_missing_parts_are_split_off_from_train(photos):
    root = photos({"train/cat": 20, "train/dog": 20, "test/cat": 3, "test/dog": 3})
    data = load(root)
    assert [len(part) for part in (data.train, data.val, data.test)] == [34, 6, 6]
    assert [path for path in data.val.images.paths if "/train/" not in path] == []


def test_without_a_test_split_its_images_train_and_validate(photos, tmp_path):
    data = load(photos({"dog": 40, "cat": 60}), split_test=False)
    assert [len(part) for part in (data.train, data.val, data.test)] == [80, 20, 0]
    assert [remark.sentence for remark in list_remarks(data) if "test" in remark.sentence] == []
    assert identify(data, ImageFolder(root="photos"))["test_images"] == 0
    (tmp_path / "small").mkdir()
    root = photos({"small/cat": 2, "small/dog": 2}) / "small"
    assert len(load(root, split_test=False).train) == 2, "one image less of each class is enough"


def test_a_test_part_of_the_data_is_kept_in_any_case(photos):
    root = photos({"train/cat": 20, "train/dog": 20, "test/cat": 3, "test/dog": 3})
    data = load(root, split_test=False)
    assert [len(part) for part in (data.train, data.val, data.test)] == [32, 8, 6]


@pytest.mark.parametrize("root", ["/proc", "/proc/self", "/sys"])
def test_a_folder_of_the_system_is_refused_at_once(root, tmp_path):
    with pytest.raises(UserError, match=f"data.root={root}: a folder of the system"):
        load(root)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(UserError, match="a folder of the system"):
        load(tmp_path / "link")


def test_train_may_be_the_name_of_a_class(photos):
    assert load(photos({"train": 4, "bus": 4})).classes == ("bus", "train")


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [("Train", "VAL", "Test"), ("training", "Validation", "testing"), ("training_set", "Valid", "test set")],
)
def test_parts_are_recognised_in_any_case_and_by_all_usual_names(photos, train, val, test):
    root = photos({f"{part}/{name}": 5 for part in (train, val, test) for name in ("cat", "dog")})
    data = load(root)
    assert data.classes == ("cat", "dog")
    assert [len(part) for part in (data.train, data.val, data.test)] == [10, 10, 10]


def test_readable_files_are_read_and_other_files_are_listed(photos):
    root = photos({"cat": 10, "dog": 10})
    with Image.open(root / "cat" / "000.png") as image:
        image.save(root / "cat" / "a.gif")
        image.save(root / "cat" / "b.jp2")
    (root / "cat" / "001.png").rename(root / "cat" / "without_ending")
    (root / "dog" / "notes.psd").write_bytes(b"x")
    (root / "dog" / "README").write_text("no image")
    os.mkfifo(root / "dog" / "pipe.png")
    os.mkfifo(root / "dog" / "pipe")
    data = load(root)
    assert sum(map(len, (data.train, data.val, data.test))) == 22
    assert [os.path.basename(path) for path in data.not_read] == ["README", "notes.psd", "pipe", "pipe.png"]
    assert [index for index in range(len(data.train)) if data.train.images[index].shape != (12, 10, 3)] == []


def test_a_folder_that_cannot_be_read_is_named(photos):
    with pytest.raises(UserError, match=r"nowhere: this folder cannot be read \(no such file or directory\)"):
        find_files(str(photos({"cat": 1}) / "nowhere"))


def test_extensions_count_in_any_case_and_hidden_files_do_not(photos):
    root = photos({"cat": 3, "dog": 3})
    (root / "cat" / "000.png").rename(root / "cat" / "000.PNG")
    (root / "cat" / "._001.png").write_bytes(b"x")
    (root / "cat" / "notes.txt").write_text("x")
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "readme.md").write_text("x")
    data = load(root)
    assert data.classes == ("cat", "dog")
    assert len(data.train) + len(data.val) + len(data.test) == 6


def test_every_extension_of_torchvision_is_read():
    from torchvision.datasets.folder import IMG_EXTENSIONS

    assert set(EXTENSIONS) >= set(IMG_EXTENSIONS)


def test_links_are_followed_and_cycles_end(photos, tmp_path):
    root = photos({"cat": 3, "deep/more/dogs": 3})
    os.symlink(root / "deep" / "more", root / "dog")
    shutil.move(root / "deep", tmp_path / "elsewhere")
    (root / "dog").unlink()
    os.symlink(tmp_path / "elsewhere" / "more", root / "dog")
    os.symlink(root / "cat", root / "cat" / "again")
    data = load(root)
    assert data.classes == ("cat", "dog")
    assert len(data.train) + len(data.val) + len(data.test) == 6


def test_paths_need_not_be_ascii(photos, tmp_path):
    root = photos({"Käse": 3, "寿司": 3}, root=tmp_path / "Ünïcode фото")
    assert load(root).classes == ("Käse", "寿司")
    assert load(root).train.images[0].shape == (12, 10, 3)


def test_a_new_image_is_seen_by_the_next_trial(photos):
    root = photos({"cat": 10, "dog": 10})
    before = load(root)
    photos({"cat": 30})
    assert len(load(root).train) > len(before.train)


def test_a_relative_root_is_resolved_where_the_command_runs(photos, monkeypatch):
    root = photos({"cat": 3, "dog": 3})
    monkeypatch.chdir(root.parent)
    spec = ImageFolder(root="photos")
    assert absolute(spec).root == str(root)
    assert absolute(absolute(spec)) == absolute(spec)
    assert load_data(spec).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"cat": 5}, "only one class, 'cat'.*at least two"),
        ({"cat": 5, "dog": 2}, "'dog' has 2 images.*at least 3 to split validation and test off"),
        ({"cat": 5, "dog": 0}, r"'dog' has no images, .*\.jpeg"),
        ({"train/a": 5, "train/b": 5, "val/c": 1}, "val has classes that train does not have: 'c'"),
        ({"train/a": 5, "train/b": 5, "val/a": 0}, "its val folder holds no image"),
        ({"train/a": 1, "train/b": 5, "val/a": 1}, "'a' has 1 image, but needs at least 2 to split test off"),
        ({"val/a": 5, "test/a": 5}, "it has test and val, but no train"),
        ({"Train": 5, "Val": 5}, "'Train' and 'Val' look like parts of the data, not like classes.*root/train/<class>"),
        ({"train": 5, "test": 5, "bus": 5}, "'test' and 'train' look like parts"),
        (
            {"trian/a": 5, "trian/b": 5, "vla/a": 5},
            "trian and vla, which look like parts of the data, and trian is none",
        ),
        ({"traning/a": 5, "val/a": 5}, "traning is none. Name the parts train, val and test"),
        ({"seg_train/a": 5, "seg_test/a": 5}, "'seg_test' and 'seg_train' look like parts"),
        ({"cat/train": 5, "cat/val": 5, "dog/train": 5}, "class 'cat' is itself divided into train and val"),
        ({"train/a": 5, "train/b": 5, "val/a": 1, "Valid/a": 1}, "Valid and val both name its val part"),
        ({"cat": 5, "dog": 5, ".": 2}, "2 images lie in .*photos.* itself, outside the class folders.*Move each"),
        ({"train/a": 5, "train/b": 5, "test/a": 2, "test": 1}, "an image lies in .*test itself"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_with_a_way_out(photos, counts, words):
    root = photos(counts)
    with pytest.raises(UserError, match=rf"^data\.root=.*photos: .*{words}"):
        load(root)


def test_a_missing_folder_is_named_as_written_and_as_resolved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"data\.root=photos: no such folder \(looked in {tmp_path}/photos\)"):
        load("photos")
    with pytest.raises(UserError, match=rf"data\.root={tmp_path}/photos: no such folder\. Give"):
        load(tmp_path / "photos")
    (tmp_path / "photos").write_bytes(b"")
    with pytest.raises(UserError, match="a file, not a folder"):
        load("photos")


def test_an_empty_folder_and_a_folder_of_loose_images_give_different_messages(photos, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"the folder is empty.*one subfolder per class"):
        load(tmp_path / "empty")
    with pytest.raises(UserError, match="images lie in it, but no subfolders"):
        load(photos({"cat": 3, "dog": 3}) / "cat")


def test_unreadable_images_are_left_out_when_asked(photos, caplog):
    root = photos({"cat": 20, "dog": 20})
    (root / "cat" / "007.png").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        data = load(root, skip_unreadable=True)
    assert data.left_out == (str(root / "cat" / "007.png"),)
    assert "cat/007.png: it cannot be read (empty file)" in caplog.text
    assert len(data.train) + len(data.val) + len(data.test) == 39
    assert load(root, skip_unreadable=True).train.images.paths == data.train.images.paths
