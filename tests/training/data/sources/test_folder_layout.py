"""Folders whose classes are deeper: they are seen, and read with `data.layout`."""

from __future__ import annotations

import os
import shlex

import pytest

from search.cli.inspect.data_source import find_recipe
from training.data.inspection.remarks import list_remarks
from training.data.load_data import load_data
from training.data.sources.image_folder import ImageFolder
from training.errors import UserError


def folders(*outer, inner=("cat", "dog"), count=4):
    return {f"{first}/{second}": count for first in outer for second in inner}


def remark_of(root, **fields):
    said = [remark.sentence for remark in list_remarks(load_data(ImageFolder(root=str(root), **fields)))]
    return next((sentence for sentence in said if "subfolders of the same names" in sentence), "")


SITES = [f"site{number}" for number in range(1, 7)]


@pytest.mark.parametrize(
    ("counts", "layout"),
    [
        (folders(*SITES), "group/class"),
        (folders("site1", "site2"), "folder/class"),  # two groups cannot fill three parts
        ({**folders(*SITES[:4]), **folders("site5", inner=["cat", "dog", "bird"]), "site6/cat": 4}, "group/class"),
        ({**folders(*SITES), "site1/unclear": 3}, "group/class"),
        (folders(*(f"{part}/site{n}" for part in ("train", "val", "test") for n in (1, 2))), "group/class"),
        (folders(*(f"{site}/images" for site in SITES)), "group/folder/class"),
        (folders(*(f"{site}/day of {site}" for site in SITES)), "group/folder/class"),
    ],
)  # fmt: skip
def test_classes_that_are_deeper_are_seen_and_the_command_reads_them(counts, layout, photos):
    root = photos(counts)
    sentence = remark_of(root)
    assert f"data.layout={layout}," in sentence
    command = shlex.split(sentence.rpartition(": ")[2])
    assert command[:2] == ["sweep", "data"]
    data = load_data(find_recipe(command[2], command[3:]).data)
    assert set(data.classes) >= {"cat", "dog"}
    assert sum(map(len, (data.train, data.val, data.test))) == sum(counts.values())
    assert all(len(part) for part in (data.train, data.val, data.test))
    assert "subfolders" not in " ".join(remark.sentence for remark in list_remarks(data))


@pytest.mark.parametrize(
    "counts",
    [
        folders("cat", "dog", inner=["."], count=10),
        folders("cat", "dog", inner=["images"], count=10),
        {"cat/2021": 5, "cat/2022": 5, "dog/ours": 5, "dog/theirs": 5},
        {"cat": 20, "dog": 20, "cat/left": 1, "cat/right": 1, "dog/left": 1, "dog/right": 1},
        {"cat/a": 5, "cat/b": 5, "cat/c": 5, "cat/d": 5, "cat/e": 5, "dog/a": 5},
    ],
)
def test_other_subfolders_of_classes_need_no_remark(counts, photos):
    assert remark_of(photos(counts)) == ""


def test_the_classes_of_days_at_sites_are_found_step_by_step(photos):
    root = photos(folders(*(f"{site}/day{day}" for site in SITES for day in (1, 2)), count=2))
    assert "'day1', 'day2'" in remark_of(root)
    assert "data.layout=group/folder/class" in remark_of(root, layout="group/class")
    assert load_data(ImageFolder(root=str(root), layout="group/folder/class")).classes == ("cat", "dog")


def test_no_group_is_in_two_parts(photos):
    root = photos(folders(*SITES))
    data = load_data(ImageFolder(root=str(root), layout="group/class"))
    paths = [part.images.paths for part in (data.train, data.val, data.test)]
    sites = [{os.path.relpath(path, root).split(os.sep)[0] for path in of} for of in paths]
    assert [len(of) for of in sites] == [4, 1, 1]
    assert set.union(*sites) == set(SITES)
    assert all(
        data.classes[label] in path for label, path in zip(data.train.labels, data.train.images.paths, strict=True)
    )


def test_too_few_groups_are_refused_with_a_way_out(photos):
    root = photos(folders("site1", "site2"))
    with pytest.raises(UserError, match=r"its 2 groups are too few .*data\.layout=folder/class"):
        load_data(ImageFolder(root=str(root), layout="group/class"))
    assert load_data(ImageFolder(root=str(root), layout="folder/class")).classes == ("cat", "dog")


def test_images_outside_the_classes_of_a_layout_are_refused(photos):
    with pytest.raises(UserError, match=r"2 images lie in .*site1 itself, outside the class folders"):
        load_data(ImageFolder(root=str(photos({**folders(*SITES), "site1": 2})), layout="folder/class"))


def test_one_folder_around_the_classes_is_refused_with_its_path(photos):
    with pytest.raises(
        UserError, match=r"only one class, 'images', .*'cat', 'dog'.*give the folder images as data\.root"
    ):
        load_data(ImageFolder(root=str(photos(folders("images")))))


def test_the_usual_layout_is_not_written_so_that_earlier_recipes_stay_equal():
    assert ImageFolder(root="photos").model_dump() == {
        "name": "image_folder", "root": "photos", "train_size": None, "split_seed": 0, "epoch_size": None,
        "skip_unreadable": False,
    }  # fmt: skip
