import io

import numpy as np
import pytest
from PIL import Image

from training.data.files.images import ImageData, ImagePart
from training.data.inspection.copies import find_near_copies
from training.data.inspection.remarks import remark_near_copies
from training.data.load_data import load_data
from training.data.sources.image_folder import ImageFolder


def draw_scene(seed, side=64):
    """Draw smooth colours, as a photograph has."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)


def make_data(train, val, test):
    def make_part(scenes):
        return ImagePart(np.zeros(len(scenes), np.int64), np.stack([np.asarray(scene) for scene in scenes]))

    return ImageData("made", ("a",), make_part(train), make_part(val), make_part(test))


@pytest.fixture
def folder(tmp_path):
    """Ten images in each part."""
    for number in range(30):
        place = tmp_path / ("train", "val", "test")[number % 3]
        for name in ("cat", "dog"):
            (place / name).mkdir(parents=True, exist_ok=True)
        draw_scene(number).save(place / ("dog" if number > 26 else "cat") / f"{number:02}.png")
    return tmp_path


def names_in(root):
    pairs = find_near_copies(load_data(ImageFolder(root=str(root))))
    return [(one.name.rpartition("/")[2], one.part, other.name.rpartition("/")[2], other.part) for one, other in pairs]


@pytest.mark.parametrize(
    ("side", "options"),
    [(64, {"quality": 90}), (64, {"quality": 40}), (32, {"quality": 75}), (200, {"quality": 75}), (48, {})],
)
def test_a_resized_or_encoded_copy_in_another_part_is_named(side, options, folder):
    assert names_in(folder) == []
    kind = "jpg" if options else "png"
    draw_scene(3).resize((side, side)).save(folder / "val" / "cat" / f"copy.{kind}", **options)
    draw_scene(1).resize((side, side)).save(folder / "test" / "cat" / f"copy.{kind}", **options)
    assert names_in(folder) == [
        (f"copy.{kind}", "validation", "03.png", "train"),
        (f"copy.{kind}", "test", "01.png", "validation"),
    ]


def test_copies_within_a_part_and_copies_byte_for_byte_are_no_near_copies(folder):
    draw_scene(0).resize((40, 40)).save(folder / "train" / "cat" / "copy.png")
    draw_scene(3).save(folder / "val" / "cat" / "same.png")
    assert names_in(folder) == []


def test_flat_and_broken_images_equal_nothing(folder):
    for name, level in (("train", 10), ("val", 12), ("test", 250)):
        Image.new("RGB", (64, 64), (level,) * 3).save(folder / name / "cat" / "flat.png")
        (folder / name / "cat" / "broken.png").write_bytes(b"\x89PNG" + name.encode())
    assert names_in(folder) == []


def test_an_image_in_memory_is_compared_with_the_most_similar_one():
    scenes = [draw_scene(number) for number in range(6)]
    similar = Image.blend(scenes[1], scenes[5], 0.15)
    content = io.BytesIO()
    scenes[1].save(content, "JPEG", quality=30)
    data = make_data([*scenes[:2], similar], scenes[2:4], [scenes[4], Image.open(content)])
    [(one, other)] = find_near_copies(data)
    assert (one.name, one.part) == ("test image 1", "test")
    assert (other.name, other.part) == ("train image 1", "train")
    remark = remark_near_copies([(one, other)], data)
    assert "1 of 4 validation and test images is almost the same as an image of another split" in remark.sentence
    assert "are alike by nature" in remark.sentence, "a quarter of the images is many"
    assert remark.short == "1 near copy in other splits"
