"""`sweep evaluate` scores a model on folders of classes as `sweep predict` labels them."""

import csv
import json
import re
import shutil

import pytest
from sklearn.metrics import confusion_matrix

from analysis.held_out.scoring import WORST
from search.cli.main import app
from training.errors import UserError


def evaluate(*arguments):
    app(["evaluate", *map(str, arguments)], standalone_mode=False)


@pytest.fixture
def photos(validation_files, tmp_path):
    """Four classes with the images of the validation, and one that is damaged."""
    folder = tmp_path / "photos"
    for name in "0123":
        shutil.copytree(validation_files / name, folder / name)
    (folder / ".cache").mkdir()
    (folder / "1" / "cut.png").write_bytes(b"\x89PNG")
    return folder


def test_the_figures_are_those_of_the_labels_that_predict_writes(exported, photos, tmp_path, capsys):
    with pytest.raises(UserError, match=r"cut\.png"):
        app(["predict", str(exported), str(photos), "--out", str(tmp_path / "p.csv")], standalone_mode=False)
    rows = list(csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8")))
    true, labels = [row["file"].split("/")[0] for row in rows], [row["label"] for row in rows]
    capsys.readouterr()
    evaluate(exported, photos, "--json", "--out", tmp_path / "page.html")
    found = json.loads(capsys.readouterr().out)
    classes = list("0123456789")
    assert found["images"] == len(rows)
    assert found["correct"] == sum(a == b for a, b in zip(true, labels, strict=True))
    assert found["confusion"] == confusion_matrix(true, labels, labels=classes).tolist()
    assert found["accuracy"]["low"] < found["accuracy"]["mean"] < found["accuracy"]["high"]
    assert [row["images"] for row in found["recall"]] == [true.count(name) for name in classes]
    assert len(found["unreadable"]) == 1
    wrong = {row["file"]: float(row["probability"]) for row in rows if row["file"].split("/")[0] != row["label"]}
    assert [wrong[error["file"]] for error in found["worst"]] == pytest.approx(
        sorted(wrong.values(), reverse=True)[:WORST], abs=1e-5
    )
    assert "data:image/png" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_person_sees_the_accuracy_the_weakest_classes_first_and_the_mistakes(
    exported, photos, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "1000")
    evaluate(exported, photos, "--out", tmp_path / "page.html")
    shown = capsys.readouterr().out
    first, head, *others = shown.splitlines()
    assert re.fullmatch(rf"Accuracy \S+ % \(.*\): [\d,]+ of [\d,]+ images of {photos}\.", first)
    assert head.split() == ["class", "images", "recognised", "recall"]
    assert "no image" in shown
    assert "Most often taken for another class: " in shown
    assert "1 file" in shown
    assert others[-1] == f"The page: {tmp_path / 'page.html'}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: shutil.rmtree(folder), "no such folder"),
        (lambda folder: [shutil.rmtree(folder / name) for name in "0123"], "no subfolder with images.*sweep predict"),
        (lambda folder: (folder / "0").rename(folder / "zero"), "'zero' is no class of the model.*Rename or remove"),
        (lambda folder: (folder / "0").rename(folder / "0_"), "Did you mean '0'"),
        (
            lambda folder: shutil.move(str(folder), str(folder.parent / "new")) and move_into_part(folder),
            "'test' is no class of the model.*Name the part to score: .*photos/test",
        ),
        (
            lambda folder: [path.write_bytes(b"") for path in folder.glob("*/*.png")],
            "none of its .* images can be read",
        ),
    ],
)
def test_a_folder_that_cannot_be_scored_ends_in_one_sentence(exported, photos, tmp_path, change, message):
    change(photos)
    with pytest.raises(UserError, match=message):
        evaluate(exported, photos, "--out", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def move_into_part(folder):
    folder.mkdir()
    (folder.parent / "new").rename(folder / "test")
