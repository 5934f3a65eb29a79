"""`sweep predict` gives the same labels for each form of a model, each way to name images, and each output."""

import csv
import io
import json
import resource
import shutil
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file

from analysis.export.bundle import export_model, read_export
from analysis.export.classifier import load_classifier
from analysis.export.onnx_export import export_onnx, quantise
from analysis.export.prediction import Options, predict_images
from analysis.export.summary import Provenance
from search.cli.main import app
from tests.analysis.made_up import OUTSIDE
from training.data.load_data import load_data
from training.errors import UserError


def predict(*arguments):
    app(["predict", *map(str, arguments)], standalone_mode=False)


def rows_of(table):
    return list(csv.DictReader(table.open(encoding="utf-8")))


@pytest.fixture(scope="module")
def with_onnx(make_export):
    """An export with all forms. Its predictions are averages, and its images have the size of the evaluation."""
    folder = make_export(flip_average={"enabled": True}, evaluation_size={"factor": 1.25})
    found = read_export(folder)
    data = load_data(found.recipe.data)
    export_onnx(found, data)
    quantise(found, data)
    return folder


@pytest.fixture
def photos(validation_files):
    return sorted(validation_files.glob("*/*.png"))[::10]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_without_finite_logits_gives_no_label(exported, photos, tmp_path, value):
    folder = shutil.copytree(exported, tmp_path / "export")
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor * value for name, tensor in weights.items()}, folder / "model.safetensors")
    with pytest.raises(UserError, match="infinite values or none .NaN.*its weights are damaged"):
        predict_images(folder, [str(photos[0])], tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_disk_that_is_full_leaves_the_older_files_and_nothing_else(exported, photos, tmp_path, small_files):
    folder = shutil.copytree(exported, tmp_path / "export")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "out.csv").write_text("older")
    found = read_export(folder)
    source = Provenance(
        metrics={},
        metric="val_accuracy",
        score=1,
        standard_error=0,
        best_epoch=1,
        classes=list(found.classes),
        threads=1,
        **OUTSIDE,
    )
    with small_files(2000):
        with pytest.raises(UserError, match="--out=.*out.csv: it cannot be written to .File too large"):
            predict_images(folder, [str(photo) for photo in photos], tmp_path / "out.csv")
        with pytest.raises(UserError, match="--out=.*cannot be written to .*File too large"):
            export_model(found.recipe, found.model.state_dict(), source, folder)
        with pytest.raises(UserError, match="--out=.*cannot be written to .*File too large"):
            export_model(found.recipe, found.model.state_dict(), source, tmp_path / "new")
    assert (tmp_path / "out.csv").read_text() == "older"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "out.csv"]


@pytest.fixture
def small_files():
    """Lets no file grow beyond some bytes, as a full disk would."""

    @contextmanager
    def limited(size):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


def test_the_onnx_forms_give_the_labels_of_the_model(with_onnx, photos, tmp_path):
    paths = [str(photo) for photo in photos]
    tables = {}
    for form in ("torch", "onnx", "int8"):
        assert predict_images(with_onnx, paths, tmp_path / form, Options(form)) == (35, [])
        tables[form] = rows_of(tmp_path / form)
    assert len({row["label"] for row in tables["torch"]}) > 1
    for plain, onnx, int8 in zip(*tables.values(), strict=True):
        assert onnx["label"] == plain["label"]
        assert float(onnx["probability"]) == pytest.approx(float(plain["probability"]), abs=1e-4)
        assert float(int8[f"probability_{plain['label']}"]) == pytest.approx(float(plain["probability"]), abs=0.15)
    assert [row["probability"] for row in tables["int8"]] != [row["probability"] for row in tables["onnx"]]


def test_an_onnx_file_predicts_without_the_weights_beside_it(with_onnx, photos, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    for name in ("recipe.yaml", "summary.json", "model.int8.onnx"):
        (small / name).write_bytes((with_onnx / name).read_bytes())
    assert predict_images(small, [str(photos[0])], tmp_path / "out.csv", Options("int8")) == (1, [])
    with pytest.raises(UserError, match=r"--model=onnx: .* has no model.onnx. Make it: sweep export NAME --onnx"):
        load_classifier(small, "onnx")
    (small / "model.onnx").write_bytes(b"junk")
    with pytest.raises(UserError, match=r"model.onnx: the file is damaged .* sweep export NAME --onnx"):
        load_classifier(small, "onnx")


def test_a_folder_a_list_and_standard_input_give_the_same_rows(exported, photos, tmp_path, monkeypatch):
    predict(exported, photos[0].parent, "--out", tmp_path / "folder.csv")
    (rows := rows_of(tmp_path / "folder.csv")).sort(key=lambda row: row["file"])
    named = sorted(map(str, photos[0].parent.iterdir()))
    text = "\n".join(named) + "\n\n"
    (tmp_path / "files.txt").write_text(text)
    predict(exported, "--list", tmp_path / "files.txt", "--out", tmp_path / "list.csv", "--batch-size", 7)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    predict(exported, "-", "--out", tmp_path / "stdin.csv", "--device", "cpu")
    listed, piped = rows_of(tmp_path / "list.csv"), rows_of(tmp_path / "stdin.csv")
    for one, other in zip(listed, piped, strict=True):
        assert {name: one[name] for name in ("file", "label")} == {name: other[name] for name in ("file", "label")}
        # Another batch size may change the last digit.
        numbers = [[float(value) for name, value in row.items() if name.startswith("p")] for row in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-6)
    assert [row["file"] for row in listed] == named
    assert [row["label"] for row in listed] == [row["label"] for row in rows]


def test_json_has_a_line_for_each_image_and_top_k_the_best_labels(exported, photos, tmp_path, capsys):
    predict(exported, photos[0].parent, "--out", tmp_path / "all.csv")
    predict(exported, photos[0].parent, "--out", tmp_path / "best.csv", "--top-k", 2)
    capsys.readouterr()
    predict(exported, photos[0].parent, "--json", "--top-k", 2)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert objects
    for whole, best, found in zip(rows_of(tmp_path / "all.csv"), rows_of(tmp_path / "best.csv"), objects, strict=True):
        shares = {
            key.removeprefix("probability_"): float(whole[key]) for key in whole if key.startswith("probability_")
        }
        first, second = sorted(shares, key=shares.get, reverse=True)[:2]
        assert (best["label"], best["label_2"]) == (first, second)
        assert list(best) == ["file", "label", "probability", "label_2", "probability_2"]
        assert found["file"] == whole["file"]
        assert list(found["probabilities"].items()) == [(first, shares[first]), (second, shares[second])]
        assert (found["label"], found["probability"]) == (first, shares[first])


def test_a_list_names_missing_files_at_the_end(exported, photos, tmp_path):
    (tmp_path / "files.txt").write_text(f"{photos[0]}\nnowhere.png\ngone/a.png\n")
    words = r"2 of 3 files .* left out: .*nowhere.png \(no such file or directory\); .*gone/a.png \(it is away, perhaps with "
    with pytest.raises(UserError, match=words):
        predict(exported, "--list", tmp_path / "files.txt", "--out", tmp_path / "out.csv")
    assert len(rows_of(tmp_path / "out.csv")) == 1


@pytest.mark.parametrize(
    ("content", "words"), [(b"\n", "it has no path of an image"), (b"\x89PNG\0\n", "it is no text file")]
)
def test_a_list_without_paths_is_refused(content, words, exported, tmp_path):
    (tmp_path / "files.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"--list=.*files.txt: {words}"):
        predict(exported, "--list", tmp_path / "files.txt", "--out", tmp_path / "out.csv")


@pytest.mark.parametrize(("device", "words"), [("gpu", "Use auto, cpu, cuda"), ("cuda:99", "Use --device cpu")])
def test_a_device_that_there_is_not_is_refused(device, words, exported):
    with pytest.raises(UserError, match=f"--device={device}: .*{words}"):
        load_classifier(exported, device=device)


def test_only_a_terminal_shows_a_bar(exported, photos, tmp_path, monkeypatch, capsys):
    predict_images(exported, photos, tmp_path / "labels.csv")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the stream for a terminal
    predict_images(exported, photos, tmp_path / "labels.csv")
    assert "Predicting" in capsys.readouterr().err
