import csv
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.load_data import load_data
from training.data.sources.manifest import Manifest
from training.data.splits import split_groups
from training.errors import UserError


@pytest.fixture
def table(photos, tmp_path):
    """Write a manifest of real files: `table(rows)` or `table(count)` returns its spec."""
    root = photos({"cat": 30, "dog": 30})

    def write(rows=None, header=("path", "label"), **fields):
        if rows is None:
            rows = [(f"photos/{name}/{n:03}.png", name) for name in ("cat", "dog") for n in range(30)]
        path = tmp_path / "täble.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        return Manifest(path=str(path), **fields)

    write.root = root
    return write


def rows_of(groups=None, splits=None):
    found = []
    for name in ("cat", "dog"):
        for n in range(30):
            row = [f"photos/{name}/{n:03}.png", name]
            found.append(row + ([groups(name, n)] if groups else []) + ([splits(name, n)] if splits else []))
    return found


def paths_of(data):
    return [set(part.images.paths) for part in (data.train, data.val, data.test)]


def test_a_table_of_paths_and_labels_is_split_in_proportion(table):
    data = load_data(table())
    assert data.classes == ("cat", "dog")
    assert [len(part) for part in (data.train, data.val, data.test)] == [42, 9, 9]
    for part in (data.train, data.val, data.test):
        assert abs(np.bincount(part.labels)[0] - len(part) / 2) <= 1
        assert [
            (label, path)
            for label, path in zip(part.labels, part.images.paths, strict=True)
            if data.classes[label] not in path
        ] == []
    train, val, test = paths_of(data)
    assert not train & val | train & test | val & test
    assert paths_of(load_data(table())) == [train, val, test]
    assert paths_of(load_data(table(split_seed=1))) != [train, val, test]


def test_a_table_without_a_test_split_gives_a_fifth_to_validation(table):
    data = load_data(table(split_test=False))
    assert [len(part) for part in (data.train, data.val, data.test)] == [48, 12, 0]


def test_a_group_never_spans_two_parts(table):
    data = load_data(table(rows_of(groups=lambda name, n: f"patient {n // 4}"), ("path", "label", "group")))
    patients = [{int(path[-7:-4]) // 4 for path in paths} for paths in paths_of(data)]
    assert all(patients)
    assert not patients[0] & patients[1] | patients[0] & patients[2] | patients[1] & patients[2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=12, max_size=80),
    st.integers(0, 5),
)
def test_groups_stay_whole_and_training_has_every_class(pairs, seed):
    labels = np.unique([label for label, _ in pairs], return_inverse=True)[1]
    groups = [str(group) for _, group in pairs]
    parts = split_groups(labels, groups, (0.15, 0.15), seed)
    assert sorted(np.concatenate(parts)) == list(range(len(pairs)))
    owners = [{groups[index] for index in part} for part in parts]
    assert not owners[0] & owners[1] | owners[0] & owners[2] | owners[1] & owners[2]
    assert set(labels[parts[2]]) == set(labels)


def test_a_given_split_is_kept(table):
    part = lambda name, n: "val" if n < 5 else "test" if n < 10 else "train"  # noqa: E731
    data = load_data(table(rows_of(splits=part), ("path", "label", "split")))
    assert [len(of) for of in (data.train, data.val, data.test)] == [40, 10, 10]
    assert [path for path in data.val.images.paths if not (int(path[-7:-4]) < 5)] == []


def test_a_split_may_be_written_in_any_case(table):
    part = lambda name, n: "Validation" if n < 5 else "TEST" if n < 10 else "Training"  # noqa: E731
    data = load_data(table(rows_of(splits=part), ("path", "label", "split")))
    assert [len(of) for of in (data.train, data.val, data.test)] == [40, 10, 10]


def test_a_named_pipe_is_no_manifest(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match=r"it cannot be read \(not a regular file\)"):
        load_data(Manifest(path=str(tmp_path / "pipe.csv")))


def test_paths_may_be_relative_to_a_root_or_absolute(table):
    rows = [(f"{name}/{n:03}.png", name) for name in ("cat", "dog") for n in range(30)]
    assert len(load_data(table(rows, root=str(table.root))).train) == 42
    whole = [(str(table.root / path), label) for path, label in rows]
    assert len(load_data(table(whole, train_size=10)).train) == 10


@pytest.mark.parametrize(
    ("header", "change", "message"),
    [
        (("file", "label"), {}, r"it has no column path \(it has file, label\)"),
        (("path", "Label"), {}, r"no column label"),
        (("path", "label"), {3: ("photos/cat/003.png", "")}, r"line 5 has no label"),
        (("path", "label"), {3: ("photos/cat/002.png", "cat")}, r"lines 4 and 5 name the same file"),
        (("path", "label"), {3: ("photos/cat/none.png", "cat")}, r"line 5: there is no file .*none\.png"),
        (
            ("path", "label", "split"),
            {3: ("photos/cat/003.png", "cat", "dev")},
            r"line 5 has split=dev\. Write train, val",
        ),
        (("path;label",), {}, r"Separate its columns by commas, not by ';'"),
        (("path", "label", "label"), {}, r"it has the column label twice"),
        (("path", "label"), {3: ("photos/cat/003.png", "cat", "x")}, r"line 5 has more values than the first line"),
        (("path", "label"), {3: ("./photos/cat/002.png", "cat")}, r"lines 4 and 5 name the same file"),
        (
            ("path", "label", "split"),
            {3: ("photos/cat/003.png", "cat", "train")},
            r"line 2 has no split, and others have",
        ),
        (
            ("path", "label", "group", "split"),
            {3: ("photos/cat/003.png", "cat", "x", "train"), 4: ("photos/cat/004.png", "cat", "x", "val")},
            r"group 'x' is in train \(line 5\) and in val \(line 6\).*may not span two parts",
        ),
    ],
)
def test_a_mistake_in_a_manifest_is_reported_with_its_line(table, header, change, message):
    rows = [
        (f"photos/{name}/{n:03}.png", name, *[""] * (len(header) - 2)) for name in ("cat", "dog") for n in range(30)
    ]
    for place, row in change.items():
        rows[place] = row
    with pytest.raises(UserError, match=message):
        load_data(table(rows, header))


def test_a_class_without_training_images_is_refused(table):
    part = lambda name, n: "train" if name == "cat" else "val"  # noqa: E731
    with pytest.raises(UserError, match=r"its training part has only one class, 'cat'"):
        load_data(table(rows_of(splits=part), ("path", "label", "split")))


def test_a_table_that_is_missing_or_empty_is_refused(table, tmp_path):
    with pytest.raises(UserError, match=r"data\.path=nowhere\.csv: it cannot be read \(no such file or directory\)"):
        load_data(Manifest(path="nowhere.csv"))
    with pytest.raises(UserError, match=r"no line below its header"):
        load_data(table([]))
    (tmp_path / "wrong.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(UserError, match=r"it cannot be read"):
        load_data(Manifest(path=str(tmp_path / "wrong.csv")))


def test_unreadable_images_can_be_left_out(table):
    (table.root / "cat" / "003.png").write_bytes(b"no image")
    data = load_data(table(skip_unreadable=True))
    assert [path.endswith("cat/003.png") for path in data.left_out] == [True]
    assert sum(len(part) for part in (data.train, data.val, data.test)) == 59
