import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from training.data.files.check import find_unreadable
from training.data.files.decode import UnreadableImage
from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.data.inspection.remarks import list_remarks, summarise_remarks
from training.data.load_data import load_data
from training.data.pipelines.dali_loader import read_encoded
from training.data.sources.digits import Digits
from training.data.sources.image_folder import ImageFolder


def remarks_of(root, **fields):
    spec = ImageFolder(root=str(root), **fields)
    found = list_remarks(load_data(spec), spec)
    return " ".join(remark.sentence for remark in found), summarise_remarks(found, spec)


def test_usual_data_needs_no_remark(photos):
    assert remarks_of(photos({"cat": 40, "dog": 40})) == ("", "")
    assert list_remarks(load_data(Digits(train_size=100))) == []


def test_classes_without_validation_images_and_imbalance_are_named(photos):
    said, line = remarks_of(photos({"train/cat": 60, "train/dog": 5, "val/cat": 6}))
    assert "The validation split has no image of 'dog'" in said
    assert "Training has 51 images of 'cat' and 4 of 'dog'" in said
    assert line.startswith("Data: no validation images of 'dog', ")
    assert "sweep data " in line


def test_few_validation_images_are_named(photos):
    assert "fewer than 5 images of 'dog' (at the least 1)" in remarks_of(photos({"cat": 60, "dog": 3}))[0]


def test_copies_across_parts_and_labels_are_named(photos):
    root = photos({"train/cat": 20, "train/dog": 20, "val/cat": 6, "val/dog": 6, "test/cat": 6, "test/dog": 6})
    shutil.copy(root / "train" / "cat" / "000.png", root / "val" / "cat" / "copy.png")
    shutil.copy(root / "train" / "cat" / "001.png", root / "train" / "dog" / "copy.png")
    said, line = remarks_of(root)
    assert "1 image is in more than one part, byte for byte" in said
    assert "val/cat/copy.png (validation)" in said
    assert "1 image has more than one label" in said
    assert "1 image in more than one part, 1 image with two labels" in line


def test_copies_of_images_in_memory_are_named():
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    pixels[20] = pixels[0]
    labels = np.arange(10) % 2
    train, val, test = (ImagePart(labels, pixels[start : start + 10]) for start in (0, 10, 20))
    found = list_remarks(ImageData("made", ("a", "b"), train, val, test))
    assert "train image 0 (train) is test image 0 (test)" in " ".join(remark.sentence for remark in found)


def test_files_that_are_skipped_or_not_read_are_counted(photos):
    root = photos({"cat": 40, "dog": 40})
    (root / "cat" / "000.png").write_bytes(b"")
    (root / "cat" / "x.psd").write_bytes(b"x")
    said, line = remarks_of(root, skip_unreadable=True)
    assert f"1 of 80 images cannot be read and is left out. To name it: sweep data {root} --check" in said
    assert "1 file among the images is not read, because the format is not known: 1 .psd" in said
    assert line.startswith("Data: 1 file not read, 1 of 80 images unreadable and left out.")
    assert line.endswith(f"See: sweep data {root} data.skip_unreadable=true")


def test_a_folder_beside_the_parts_is_named(photos):
    said, line = remarks_of(photos({"train/cat": 40, "train/dog": 40, "vla/cat": 5, "vla/dog": 5}))
    assert "'vla' lies beside the parts train, val and test, and no image in it is used" in said
    assert "'vla' not used" in line


def test_classes_that_differ_in_capitals_are_named(photos):
    assert (
        "The classes 'Cat', 'cat' differ only in upper and lower case" in remarks_of(photos({"cat": 40, "Cat": 40}))[0]
    )


def test_a_huge_image_is_named_without_a_warning_of_pillow(photos, monkeypatch):
    root = photos({"cat": 40, "dog": 40})
    Image.new("RGB", (30, 20)).save(root / "cat" / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert "huge.png the largest (30×20)" in remarks_of(root)[0]
    code = (
        "import sys; from PIL import Image; from training.data.files.decode import read_image\n"
        "Image.MAX_IMAGE_PIXELS = 400; read_image(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root / "cat" / "huge.png")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_with_several_pages_or_frames_are_counted(photos):
    root = photos({"cat": 40, "dog": 40})
    pages = [Image.new("RGB", (12, 10), colour) for colour in ("red", "green", "blue")]
    names = ("a.tif", "b.webp", "c.png", "d.gif", "e.avif")
    for name in names:
        pages[0].save(root / "cat" / name, save_all=True, append_images=pages[1:])
        pages[0].save(root / "dog" / name)
    pages[0].save(root / "dog" / "photo.jpg", "MPO", save_all=True, append_images=pages[1:])  # cameras' previews
    cut = (root / "cat" / "d.gif").read_bytes()
    (root / "dog" / "cut.gif").write_bytes(cut[: len(cut) - 20])
    said, line = remarks_of(root)
    several = {*(str(root / "cat" / name) for name in names), str(root / "dog" / "cut.gif")}
    first = next(path for path in load_data(ImageFolder(root=str(root))).paths if path in several)
    assert f"6 of 92 images have several pages or frames, such as {first}: only the first is used." in said
    assert "6 images of several pages" in line
    for name in names[1:]:
        (root / "cat" / name).unlink()
    (root / "dog" / "cut.gif").unlink()
    said, line = remarks_of(root)
    assert (
        f"1 of 87 images has several pages or frames, such as {root / 'cat' / 'a.tif'}: only the first is used." in said
    )
    assert "1 image of several pages" in line


@pytest.mark.timeout(20)
def test_a_named_pipe_is_never_opened(tmp_path):
    pipe = str(tmp_path / "pipe.jpg")
    os.mkfifo(pipe)
    assert find_unreadable([pipe]) == {pipe: "not a regular file"}
    with pytest.raises(UnreadableImage, match="not a regular file"):
        read_encoded(pipe)
    with pytest.raises(UnreadableImage, match="not a regular file"):
        ImageFiles([pipe])[0]
