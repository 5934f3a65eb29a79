import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from search.cli.inspect.data_command import show_data
from search.cli.inspect.data_source import find_recipe
from search.display.terminal import make_console
from search.runner.machines.preparation import prepare_machine
from training.contract.specs import Preprocessing
from training.data.inspection.picture import caption_of, draw_sheet
from training.data.inspection.remarks import list_remarks, summarise_remarks
from training.data.load_data import load_data
from training.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    random = np.random.default_rng(0)
    for name in ("cät", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.jpg")
    return tmp_path / "photos"


def test_it_shows_classes_split_and_statistics_and_writes_a_picture(photos, tmp_path, capsys):
    out = tmp_path / "new" / "sheet.png"
    show_data(
        str(photos),
        ["random_crop.name=resized", "flip.probability=0.5", "mixup.alpha=1.0"],
        out,
        False,
        make_console(),
    )
    said = " ".join(capsys.readouterr().out.split())  # the width of the terminal decides where lines end
    for words in (
        "cät",
        "2 classes",
        "On these validation images, an accuracy of 80 % has a standard error of 20.0 points.",
        "Shorter side 20 pixels",
        "random crop resized, flip 0.5, augmentation none, backend tensor (auto)",
    ):
        assert words in said
    with Image.open(out) as picture:
        assert picture.width > 8 * 100


@pytest.mark.parametrize("mixer", ["mixup", "cutmix", "fmix"])
def test_the_captions_of_the_picture_are_the_shares_of_the_mixed_classes(mixer, photos, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "training.data.inspection.picture.draw_sheet",
        lambda images, captions, _: drawn.append((images, captions)) or Image.new("RGB", (8, 8)),
    )
    fields = [f"{mixer}.alpha=1.0", "batch_size=5", "random_erasing.probability=1.0"]
    show_data(str(photos), fields, tmp_path / "sheet.png", False, make_console())
    [(images, captions)] = drawn
    assert len(images) == len(captions) > 10
    mixed = [re.fullmatch(r"(cät|dog) (\d+)% \+ (cät|dog) (\d+)%", caption) for caption in captions]
    assert any(mixed)  # images that were mixed with their own class have one share
    assert [found for found in mixed if found and not (abs(int(found[2]) + int(found[4]) - 100) <= 1)] == []
    assert ((images == 0).all(1).sum((1, 2)) > 0).sum() > len(images) / 2  # images are erased before they are mixed


def test_the_command_that_a_run_prints_about_images_that_are_left_out_works(photos, tmp_path, capsys):
    (photos / "dog" / "3.jpg").write_bytes(b"")
    spec = find_recipe(str(photos), ["data.skip_unreadable=true"]).data
    printed = summarise_remarks(list_remarks(load_data(spec), spec), spec)
    source, *overrides = shlex.split(printed.partition("See: sweep data ")[2])
    show_data(source, overrides, tmp_path / "sheet.png", False, make_console())
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 24 images cannot be read and is left out. To name it: sweep data" in said


def test_check_names_every_broken_file_and_exits_with_1(photos, tmp_path):
    (photos / "dog" / "3.jpg").write_bytes(b"")
    (photos / "cät" / "4.jpg").write_bytes((photos / "cät" / "4.jpg").read_bytes()[:300])
    code = "from search.cli.main import main; main()"
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", code, "data", str(photos), "--check"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "dog/3.jpg: empty file" in done.stdout
    assert "cät/4.jpg: " in done.stdout
    assert "Checked 24 images: 22 can be read, 2 cannot." in done.stdout


def test_the_argument_may_be_a_data_set_a_folder_a_manifest_a_recipe_or_a_space(photos, tmp_path):
    (tmp_path / "list.csv").write_text("path,label\n")
    (tmp_path / "mine.yaml").write_text("format: 1\nrecipe:\n  epochs: 3\n")
    assert find_recipe("digits", ["data.train_size=50"]).data.train_size == 50
    assert find_recipe(str(photos), []).data.root == str(photos)
    assert find_recipe(str(tmp_path / "list.csv"), []).data.name == "manifest"
    assert find_recipe(str(tmp_path / "mine.yaml"), []).epochs == 3
    shown = find_recipe("card", [])
    assert shown.augmentation.policy == "affine_colour"
    assert shown.random_crop.name != "none"
    assert shown.flip.probability > 0
    with pytest.raises(UserError, match=r"there is no such space, data set, folder or file\. Did you mean card\?"):
        find_recipe("cardd", [])
    with pytest.raises(UserError, match="there is no such space, data set, folder or file"):
        find_recipe("photos/cats", [])
    with pytest.raises(UserError, match="image_folder is a kind of data, not a data set: give the folder itself"):
        find_recipe("image_folder", [])
    with pytest.raises(UserError, match="manifest is a kind of data, not a data set: give its file"):
        find_recipe("manifest", [])
    with pytest.raises(UserError, match="one image is not a data set"):
        find_recipe(str(photos / "dog" / "1.jpg"), [])


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("photos", "this is a folder. Name a file"),
        ("sheet.xyz", ".xyz is not the ending of a picture. Name it sheet.png"),
        ("photos/dog/sheet.png", "this file would be among the images"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_printed(out, words, photos, tmp_path, capsys):
    with pytest.raises(UserError, match=f"--out=.*{words}"):
        show_data(str(photos), [], tmp_path / out, False, make_console())
    assert capsys.readouterr().out == ""


def test_anomalies_are_reported(photos, tmp_path, capsys):
    (photos / "dog" / "[red]x.psd").write_bytes(b"")
    show_data(str(photos), [], tmp_path / "sheet.png", False, make_console())
    said = capsys.readouterr().out
    assert "1 .psd" in said
    assert "[red]x.psd" in said


@pytest.mark.parametrize("check", [False, True])
def test_near_copies_are_counted_and_named(check, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("search.cli.inspect.data_command.LISTED_PAIRS", 1)
    for part in ("train", "val"):
        shutil.copytree(photos, tmp_path / "split" / part)
    for file in (tmp_path / "split" / "val").rglob("*.jpg"):
        Image.open(file).resize((48, 40)).save(file)
    found = show_data(str(tmp_path / "split"), [], tmp_path / "sheet.png", check, make_console())
    said = " ".join(capsys.readouterr().out.split())
    assert len(found.near_copies) >= 20
    assert f"! {len(found.near_copies)} of " in said
    first = found.near_copies[0]
    assert f"{first.name} ({first.part}) is almost {first.other_name} ({first.other_part})" in said
    assert f"… and {len(found.near_copies) - 1} more: --json has all." in said
    assert "are almost the same as an image of another split" in found.remarks[-1]


def test_checking_data_without_files_is_refused(tmp_path):
    with pytest.raises(UserError, match="--check: digits has no image files"):
        show_data("digits", [], tmp_path / "x.png", True, make_console())


def test_the_picture_undoes_the_normalisation():
    preprocessing = Preprocessing(image_size=8, crop=1.0, interpolation="bilinear", mean=[0.2, 0.4, 0.6], std=[0.1] * 3)
    level = torch.tensor([0.5, 0.5, 0.5])
    images = ((level - torch.tensor([0.2, 0.4, 0.6])) / 0.1)[None, :, None, None].expand(3, 3, 8, 8)
    sheet = np.asarray(draw_sheet(images, ["a", "b", "c"], preprocessing))
    assert (sheet[10, 10] == 128).all()


def test_a_caption_may_have_two_lines():
    preprocessing = Preprocessing(image_size=8, crop=1.0, interpolation="bilinear", mean=[0.5] * 3, std=[0.1] * 3)
    one, two = (
        np.asarray(draw_sheet(torch.zeros(2, 3, 8, 8), [text, "b"], preprocessing)) for text in ("a", "a\nnot b")
    )
    added = two[one.shape[0] - 2 :]
    assert len(added) > 10
    assert (added.min(axis=(0, 2)) < 100).any(), "nothing is written in the second line"


def test_a_caption_has_the_shares_of_the_mixed_classes():
    assert caption_of(torch.tensor(1), ("cat", "dog")) == "dog"
    assert caption_of(torch.tensor([0.3, 0.7]), ("cat", "dog")) == "dog 70% + cat 30%"
    assert caption_of(torch.tensor([1.0, 0.0]), ("cat", "dog")) == "cat"


def test_preparing_a_machine_reports_anomalies_in_one_line(photos, tmp_path):
    (photos / "dog" / "x.psd").write_bytes(b"")
    recipe = find_recipe(str(photos), ["backbone.name=test_resnet"])
    facts = prepare_machine(str(tmp_path), [recipe.model_dump()], 0)
    assert facts.problem is None
    assert facts.remark.startswith("Data: 1 file not read, ")
    assert facts.remark.endswith(f"See: sweep data {photos}")


def test_the_numbers_of_images_stand_on_the_right(tmp_path, capsys):
    show_data("digits", [], tmp_path / "x.png", False, make_console())
    assert "│ 0          │   108 │         35 │   35 │" in capsys.readouterr().out


def test_letters_that_the_usual_font_lacks_come_from_an_installed_one(monkeypatch, tmp_path):
    from matplotlib import font_manager

    from training.data.inspection.picture import find_font

    find_font.cache_clear()
    usual = find_font("Käfer")
    assert Path(usual).name == "DejaVuSans.ttf"
    every = Path(usual).with_name("LastResortHE-Regular.ttf")
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(every), str(tmp_path / "broken.ttf")])
    assert find_font("猫 cat") == str(every)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert find_font("犬") == usual
