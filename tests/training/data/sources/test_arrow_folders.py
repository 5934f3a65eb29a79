"""Folders of Hugging Face's `datasets` hold caches beside the data, which are not read as images."""

from __future__ import annotations

import json

import pytest

from tests.training.data.sources.test_packed import rows, sizes, write_parquet
from training.data.load_data import load_data
from training.data.sources.parquet import Parquet
from training.errors import UserError

SAVED = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train", "_fingerprint": "1"}
BUILT = {"splits": {"train": {"name": "train", "num_examples": 20}, "validation": {"name": "validation"}}}


def load(root):
    return sizes(load_data(Parquet(root=str(root))))


def write_arrow(root, counts):
    for name, count in counts.items():
        write_parquet(root / name, rows(count), arrow=True)


@pytest.mark.parametrize(
    "caches",
    [
        {"cache-1f2e3d4c5b6a7988.arrow": 20},
        {"cache-1f2e3d4c5b6a7988.arrow": 20, "cache-0000000000000000.arrow": 8},
        {"cache-1f2e3d4c5b6a7988_00000_of_00002.arrow": 10, "cache-1f2e3d4c5b6a7988_00001_of_00002.arrow": 10},
        {"tmp0zk3qx.arrow": 3},
        {"resized.arrow": 20},  # `map` with a name for its cache
    ],
)
def test_caches_beside_saved_arrow_data_are_not_read(caches, tmp_path):
    write_arrow(tmp_path, {"data-00000-of-00001.arrow": 20, **caches})
    (tmp_path / "state.json").write_text(json.dumps(SAVED))
    (tmp_path / "dataset_info.json").write_text("{}")
    assert load(tmp_path) == [14, 3, 3]


def test_caches_of_each_part_are_not_read(tmp_path):
    for part, count in (("train", 20), ("validation", 6), ("test", 4)):
        write_arrow(tmp_path / part, {"data-00000-of-00001.arrow": count, "cache-00aa.arrow": count})
        (tmp_path / part / "state.json").write_text(json.dumps(SAVED))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    assert load(tmp_path) == [20, 6, 4]


@pytest.mark.parametrize("name", ["pets-{}.arrow", "{}.arrow", "pets-{}-00000-of-00001.arrow"])
def test_caches_beside_a_built_data_set_are_not_read(name, tmp_path):
    cache = {"cache-00aa.arrow": 20, "train_resized.arrow": 20, "mapped.arrow": 4}
    write_arrow(tmp_path, {name.format("train"): 20, name.format("validation"): 6, **cache})
    (tmp_path / "dataset_info.json").write_text(json.dumps(BUILT))
    assert load(tmp_path) == [17, 6, 3]


def test_caches_are_recognised_by_their_names_where_nothing_lists_the_files(tmp_path):
    write_arrow(tmp_path, {"data.arrow": 20, "cache-00aa.arrow": 20})
    assert load(tmp_path) == [14, 3, 3]
    (tmp_path / "data.arrow").unlink()
    assert load(tmp_path) == [14, 3, 3]
    (tmp_path / "state.json").write_text('{"epoch": 3}')  # of another program
    assert load(tmp_path) == [14, 3, 3]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (json.dumps(SAVED), r"has no data-00000-of-00001\.arrow, which its state\.json lists"),
        ("{", r"state\.json cannot be read \("),
        (json.dumps({**SAVED, "_indices_data_files": [{"filename": "indices.arrow"}]}), "means only some rows"),
    ],
)
def test_a_state_that_does_not_fit_the_files_is_refused(state, sentence, tmp_path):
    write_arrow(tmp_path, {"cache-00aa.arrow": 20})
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(UserError, match=rf"^data\.root=.*{sentence}"):
        load(tmp_path)
