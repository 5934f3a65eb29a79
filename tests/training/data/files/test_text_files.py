"""Text files that people save on Windows begin with a mark, in UTF-8 or UTF-16, which is no part of the text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from search.cli.predict import choose_images
from spaces.load import load_space
from tests.training.data.sources.test_packed import draw, write_tar
from training.data.load_data import load_data
from training.data.sources.manifest import Manifest
from training.data.sources.webdataset import WebDataset
from training.process.text_files import read_json
from training.techniques.data.augmentation_file import read_pipeline

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"]
PATHS = ["photos/cat/000.png", "photos/Käse/001.png", "photos/寿司/002.png"]


def encode(text, encoding):
    """Encode a text as Windows saves it: with its line ends, and with a mark unless it is plain UTF-8."""
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    return (mark + text.replace("\n", "\r\n")).encode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_paths_of_a_list_are_read_in_each_encoding(encoding, tmp_path, monkeypatch):
    content = encode("".join(f"{path}\n" for path in PATHS), encoding)
    (tmp_path / "list.txt").write_bytes(content)
    assert choose_images(None, tmp_path / "list.txt") == PATHS
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert choose_images(Path("-"), None) == PATHS


def test_lists_that_were_joined_have_a_mark_in_the_middle(tmp_path):
    content = b"".join(encode(f"{path}\n", "utf-8-sig") for path in PATHS)
    (tmp_path / "list.txt").write_bytes(content)
    assert choose_images(None, tmp_path / "list.txt") == PATHS


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_manifest_is_read_in_each_encoding(encoding, photos, tmp_path):
    root = photos({"Käse": 5, "寿司": 5})
    lines = [f"{path.relative_to(root)},{path.parent.name}\n" for path in sorted(root.rglob("*.png"))]
    (tmp_path / "list.csv").write_bytes(encode("path,label\n" + "".join(lines), encoding))
    assert load_data(Manifest(path=str(tmp_path / "list.csv"), root=str(root))).classes == ("Käse", "寿司")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_space_is_read_in_each_encoding(encoding, tmp_path):
    text = "format: 1\nrecipe:\n  data: {name: digits}\n  epochs: 3\nsearch:\n  trials: 4\n"
    (tmp_path / "mine.yaml").write_bytes(encode(text, encoding))
    assert load_space(str(tmp_path / "mine.yaml")).search.trials == 4


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_json_file_is_read_in_each_encoding(encoding, tmp_path):
    (tmp_path / "state.json").write_bytes(encode('{"name":\n"Käse"}', encoding))
    assert read_json(tmp_path / "state.json") == {"name": "Käse"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_augmentation_file_is_read_in_each_encoding(encoding, tmp_path):
    import albumentations as A

    A.save(A.Compose([A.HorizontalFlip(p=1)]), tmp_path / "plain.json")
    (tmp_path / "mine.json").write_bytes(encode((tmp_path / "plain.json").read_text(), encoding))
    assert "HorizontalFlip" in read_pipeline(str(tmp_path / "mine.json"))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_label_of_a_sample_is_read_in_each_encoding(encoding, tmp_path):
    names = ("Käse", "寿司")
    # Half of the labels come from another system.
    labels = [encode(f"{names[number % 2]}\n", encoding if number < 10 else "utf-8") for number in range(20)]
    samples = [(f"{number:02}", draw(number % 2, number % 7), label) for number, label in enumerate(labels)]
    write_tar(tmp_path / "a.tar", samples)
    assert load_data(WebDataset(root=str(tmp_path))).classes == names
