"""Images that moved: the same ones are accepted at their new place, others are refused, and all recipes follow."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from ledger.events import DataMoved, Replication, ReplicationTrial, TrialStarted
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.cli.main import app
from search.core.controller import Controller
from search.runner.start.moved_data import check_images, follow_move, keep_files, move_data
from search.runner.sweep import create_folder, make_header
from search.tracking.run import dataset_of
from spaces.load import load_space
from training.data.identity import identify, list_files
from training.data.load_data import load_data
from training.errors import UserError
from training.loop.epoch_report import Report


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A sweep of photographs, one of whose trials has started; then their folder is copied, with new times."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.bmp")
    space = load_space("quick", [f"data={{name: image_folder, root: {tmp_path}/photos}}", "search.trials=4"])
    data = space.baselines()[0].data
    folder = SweepFolder(tmp_path / "sweeps" / "mine")
    create_folder(folder, make_header("mine", "1", space, Settings(), identify(load_data(data), data)))
    keep_files(folder, list_files(load_data(data), data))
    Controller(space, Ledger(folder.ledger)).next_trial()
    shutil.copytree(tmp_path / "photos", tmp_path / "archive" / "photos", copy_function=shutil.copyfile)
    return SweepRecord.open(folder)


def test_every_recipe_of_a_sweep_has_the_new_place_and_the_ledger_keeps_what_was(record, tmp_path):
    shutil.rmtree(tmp_path / "photos")
    with pytest.raises(UserError, match=r"no longer there\. If they moved, add .* data\.root=NEW/FOLDER"):
        check_images(record, is_local=True)
    said = []
    moved = move_data(record, ["data.root=archive/photos"], said.append)
    check_images(moved, is_local=True)
    place = str(tmp_path / "archive" / "photos")
    assert said == [f"The images of mine are now at {place}."]
    again = SweepRecord.open(record.folder)
    controller = Controller(again.space, Ledger(again.folder.ledger))
    recipes = [again.trials.by_number[0].recipe, controller.baselines[0], controller.next_trial().recipe]
    assert [recipe.data.root for recipe in recipes] == [place] * 3
    started = next(event for event in again.events if isinstance(event, TrialStarted))
    assert started.recipe.data.root == str(tmp_path / "photos")
    assert move_data(again, ["data.root=archive/photos"], said.append) is again


def test_other_images_are_refused_in_one_sentence(record, tmp_path):
    changed = tmp_path / "archive" / "photos" / "cat" / "0.bmp"
    Image.new("RGB", (8, 8)).save(changed)  # of the same size in bytes
    for change, reason in (
        (lambda: None, r"1 file changed \(cat/0.bmp\)"),
        (changed.unlink, r"23 images in 2 classes, .* 24 images in 2 classes; 1 file removed \(cat/0.bmp\)"),
    ):
        change()
        with pytest.raises(UserError, match=f"these are not the images of mine: .*{reason}"):
            move_data(record, ["data.root=archive/photos"], print)
    with pytest.raises(UserError, match=r"^epochs=3: .* only data\.root and data\.path can be set"):
        move_data(record, ["epochs=3"], print)
    assert [event for event in SweepRecord.open(record.folder).events if isinstance(event, DataMoved)] == []


def save(path, colour=0):
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (8, 8), (colour, 0, 0)).save(path)


def swap(one, other):
    was = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(was)


def touch(folder):
    for path in folder.glob("*/*"):
        os.utime(path, (1, 1))


CHANGES = {  # what a user does to the folder of images, and what the refusal says; None: nothing has changed
    "an image added": (lambda root: save(root / "cat" / "new.bmp"), r"1 file added \(cat/new.bmp\)"),
    "five images added": (
        lambda root: [save(root / "cat" / f"new{number}.bmp") for number in range(5)],
        r"5 files added \(cat/new0.bmp, cat/new1.bmp, cat/new2.bmp, …\)",
    ),
    "an image removed": (lambda root: (root / "dog" / "3.bmp").unlink(), r"1 file removed \(dog/3.bmp\)"),
    "an image replaced": (lambda root: save(root / "dog" / "3.bmp"), r"1 file changed \(dog/3.bmp\)"),
    "an image replaced at its time": (
        lambda root: [save(root / "dog" / "3.bmp", 9), os.utime(root / "dog" / "3.bmp", (1, 1))],
        r"1 file changed",
    ),
    "two images swapped": (lambda root: swap(root / "dog" / "3.bmp", root / "cat" / "3.bmp"), "2 files changed"),
    "an image in another class": (
        lambda root: (root / "dog" / "3.bmp").rename(root / "cat" / "x.bmp"),
        r"1 file added \(cat/x.bmp\), 1 file removed \(dog/3.bmp\)",
    ),
    "a class added": (
        lambda root: [save(root / "fox" / f"{number}.bmp", number) for number in range(9)],
        r"33 images in 3 classes, and the sweep began with 24 images in 2 classes; 9 files added",
    ),
    "a class renamed": (lambda root: (root / "dog").rename(root / "wolf"), "12 files added .*12 files removed"),
    "all images renamed": (
        lambda root: [path.rename(path.with_name("a" + path.name)) for path in root.glob("*/*")],
        "24 files added",
    ),
    "other times": (touch, None),
    "a file that is no image": (lambda root: (root / "notes.txt").write_text("mine"), None),
}


@pytest.mark.parametrize("has_files", [True, False], ids=["", "a sweep without the list of its files"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_sweep_goes_on_with_the_images_with_which_it_began(record, tmp_path, change, has_files):
    act, reason = CHANGES[change]
    if not has_files:
        record.folder.images.write_bytes(b"damaged")
    act(tmp_path / "photos")
    if reason is None:
        check_images(record, is_local=True)
        return
    with pytest.raises(UserError, match=reason if has_files else "names, sizes or contents of files differ") as refused:
        check_images(record, is_local=True)
    for words in (
        f"data.root={tmp_path}/photos: these are not the images of mine",
        "start a new sweep with --warm-start mine.",
    ):
        assert words in str(refused.value)


def test_resume_confirm_and_ablate_refuse_other_images(record, tmp_path):
    Controller(record.space, Ledger(record.folder.ledger)).report(0, Report(27, {}, 0.5, 0.01, 27, [], 0.0))
    save(tmp_path / "photos" / "cat" / "new.bmp")
    for arguments in (["resume", "--trials", "1"], ["confirm"], ["ablate"]):
        with pytest.raises(UserError, match="these are not the images of mine"):
            app([arguments[0], "mine", *arguments[1:]], standalone_mode=False)
    assert SweepRecord.open(record.folder).trials.extra == 0


def test_a_confirmation_follows_its_sweep(record, tmp_path):
    recipe = record.trials.by_number[0].recipe
    listed = ReplicationTrial(label="baseline", recipe=recipe, origin="baseline")
    folder = SweepFolder(tmp_path / "sweeps" / "mine-confirm")
    event = Replication(of="mine", seeds=(1,), trials=(listed,))
    create_folder(folder, make_header("mine-confirm", "2", record.space, Settings()), event)
    other = SweepRecord.open(folder)
    assert follow_move(other, record) is other
    moved = follow_move(other, move_data(record, ["data.root=archive/photos"], print))
    controller = Controller(moved.space, Ledger(folder.ledger))
    assert controller.next_trial().recipe.data.root == str(tmp_path / "archive" / "photos")


def test_the_command_names_the_way_out_and_takes_it(record, tmp_path):
    shutil.rmtree(tmp_path / "photos")
    with pytest.raises(UserError, match=r"add their new place to the command, as in data\.root=NEW/FOLDER"):
        app(["resume", "mine", "--trials", "1"], standalone_mode=False)
    assert SweepRecord.open(record.folder).trials.extra == 0
    with pytest.raises(UserError, match="mine has no completed trial"):
        app(["confirm", "mine", "data.root=archive/photos"], standalone_mode=False)
    assert SweepRecord.open(record.folder).space.recipe["data"]["root"] == str(tmp_path / "archive" / "photos")


def test_mlflow_does_not_show_the_digest_of_the_content_twice(record):
    assert "content" not in dataset_of(record.header.dataset).dataset.profile
