"""Files that no decoder reads, files of other formats, and grey levels of another depth."""

import io
import sys
from contextlib import suppress
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image

from training.data.files import check, decode, formats
from training.data.files.check import check_images, find_unreadable
from training.data.files.decode import UnreadableImage, read_image
from training.data.load_data import load_data
from training.data.pipelines.dali_loader import read_encoded
from training.data.sources.image_folder import ImageFolder
from training.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
ERRORS = [RuntimeError, AttributeError, ZeroDivisionError, AssertionError, LookupError, ArithmeticError, EOFError]


def encoded(kind):
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["AVIF", "JPEG", "PNG", "WEBP", "GIF", "TIFF", "JPEG2000"])
@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_a_damaged_file_of_each_format_is_unreadable_or_read(tmp_path, kind, damage):
    content = encoded(kind)
    half = len(content) // 2
    content = content[:half] + (bytes(half) if damage == "zeros" else b"")
    path = tmp_path / "damaged.png"
    path.write_bytes(content)
    for read in (read_image, read_encoded):
        with suppress(UnreadableImage):  # nothing else
            read(str(path))


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_a_decoder_raises_is_unreadable(tmp_path, monkeypatch, error):
    def fail(*arguments):
        raise error("wrong")

    path = tmp_path / "image.gif"
    path.write_bytes(encoded("GIF"))
    monkeypatch.setattr(decode, "turn_upright", fail)
    with pytest.raises(UnreadableImage, match=r"cannot be read \('?wrong"):
        read_image(str(path))


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, SystemExit])
def test_memory_and_interrupts_pass(tmp_path, monkeypatch, error):
    def fail(*arguments):
        raise error

    path = tmp_path / "image.png"
    path.write_bytes(encoded("PNG"))
    monkeypatch.setattr(decode, "turn_upright", fail)
    with pytest.raises(error):
        read_image(str(path))


def box(brand, *others):
    body = b"ftyp" + brand + bytes(4) + b"".join(others)
    return (4 + len(body)).to_bytes(4, "big") + body + bytes(100)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (box(b"heic", b"mif1"), "a HEIC image, .*pip install pillow-heif"),
        (box(b"mif1", b"heic"), "a HEIC image"),
        (box(b"crx "), "a raw file of a camera"),
        (box(b"isom", b"mp41"), "a video"),
        (box(b"avif", b"mif1"), "[Ii]nvalid|AVIF|failed"),
        (b"\xff\x0a" + bytes(50), "a JPEG XL image"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL image"),
        (b"FUJIFILMCCD-RAW 0201", "a raw file of a camera"),
        (b"%PDF-1.4\n", "a PDF document, not an image"),
        (b'<?xml version="1.0"?>\n<svg xmlns="">', "an SVG drawing"),
        (b"<!DOCTYPE html><html>404", "a page in HTML"),
        (b'{"error": "not found"}', "a text in JSON"),
        (b"<Error><Code>AccessDenied</Code>", "a text in XML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(30), "a ZIP archive"),
        (b"8BPS\0\1" + bytes(30), "a Photoshop file"),
        (bytes(128) + b"DICM", "a DICOM file"),
        (bytes(300), "only zero bytes"),
        (b"\xff\xd8\xff\xe0", "a damaged JPEG file"),
        (
            cv2.imencode(".tiff", np.zeros((4, 4, 3), np.float32))[1].tobytes(),
            r"a TIFF that is damaged, or not read \(32-bit colours\): save it as PNG",
        ),
        (b"", "empty file"),
        (b"no image at all", "not an image"),
    ],
)
def test_a_file_of_another_format_is_named(tmp_path, content, words):
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    with pytest.raises(UnreadableImage, match=rf"photo\.jpg: this image cannot be read \(.*({words})"):
        read_image(str(path))


@pytest.mark.parametrize("name", ["0.heic", "0.HEIF", "0.hif"])
def test_a_folder_of_heic_images_is_named_with_the_package_that_reads_them(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    root = tmp_path / "phone"
    for label in ("cat", "dog"):
        for number in range(5):
            (root / label).mkdir(parents=True, exist_ok=True)
            (root / label / f"{number}{name}").write_bytes(box(b"heic", b"mif1"))
    data = load_data(ImageFolder(root=str(root)))
    assert len(data.train) + len(data.val) + len(data.test) == 10
    with pytest.raises(UserError, match=r"a HEIC image, which pillow-heif reads: pip install pillow-heif"):
        check_images(data)
    pretend_to_have_pillow_heif(monkeypatch)
    check_images(data)


def pretend_to_have_pillow_heif(monkeypatch):
    def register():
        Image.register_open("HEIF", lambda file, name: Image.new("RGB", (4, 4), (9, 8, 7)))

    monkeypatch.setitem(sys.modules, "pillow_heif", SimpleNamespace(register_heif_opener=register))
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    monkeypatch.setattr(Image, "ID", list(Image.ID))


def test_avif_without_its_decoder_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr(formats, "features", SimpleNamespace(check=lambda name: False))
    assert formats.describe_format(box(b"avif")).endswith("pip install --upgrade pillow")


def test_heic_is_read_by_pillow_heif_where_it_is_installed(tmp_path, monkeypatch):
    path = tmp_path / "photo.heic"
    path.write_bytes(box(b"heic"))
    pretend_to_have_pillow_heif(monkeypatch)
    assert formats.can_read_heic()
    assert read_image(str(path))[0, 0].tolist() == [9, 8, 7]


def test_skipping_unreadable_images_decodes_all_of_a_large_set(tmp_path, monkeypatch):
    from training.contract.specs import FileData
    from training.recipe import Recipe

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(6):
            Image.fromarray(PIXELS).save(tmp_path / name / f"{number}.jpg", quality=50 + number)
    cut = tmp_path / "cat" / "0.jpg"
    cut.write_bytes(cut.read_bytes()[:-500])
    monkeypatch.setattr(check, "DECODED_IMAGES", 5)
    assert find_unreadable([str(cut)] * 6) == {}
    spec = Recipe.kinds("data")["image_folder"](root=str(tmp_path), skip_unreadable=True)
    assert isinstance(spec, FileData)
    assert spec.load().left_out == (str(cut),)


GREY = np.linspace(0, 255, 64 * 64).reshape(64, 64).astype(np.uint8)


@pytest.mark.parametrize(
    ("levels", "tolerance"),
    [
        (GREY.astype(np.float32), 0),
        (GREY.astype(np.float32) / 255, 0),
        (GREY.astype(np.float32) * 257, 0),
        (np.rint(GREY / 255 * 4095).astype(np.uint16), 1),
        (GREY.astype(np.uint16) * 257, 0),
        (GREY.astype(np.int32), 0),
        (GREY.astype(np.int32) * 257, 0),
        (GREY.astype(np.int32) * 10 - 1000, 0),
        (GREY.astype(np.float32) * 10 - 1000, 0),
        (GREY.astype(np.float32) * 1e6, 0),
    ],
    ids=[
        "float 255",
        "float 1",
        "float 65535",
        "12 bits",
        "16 bits",
        "8 in 32",
        "16 in 32",
        "signed",
        "below 0",
        "large",
    ],
)
def test_grey_levels_of_any_depth_become_8_bits(tmp_path, levels, tolerance):
    path = str(tmp_path / "grey.tiff")
    Image.fromarray(levels).save(path)
    seen = read_image(path)[..., 0].astype(int)
    assert int(np.abs(seen - GREY).max()) <= tolerance


@pytest.mark.parametrize(
    ("bits", "alpha", "ending"),
    [
        *((bits, False, ending) for bits in (12, 16) for ending in ("png", "tif", "ppm", "jp2")),
        (12, True, "png"),
        (12, True, "tif"),
    ],
)
def test_colours_of_more_than_8_bits_look_as_in_8(tmp_path, bits, alpha, ending):
    plain = np.random.default_rng(0).integers(0, 256, (40, 48, 4 if alpha else 3)).astype(np.uint8)
    plain[0, 0, :3] = 255
    path = str(tmp_path / f"colours.{ending}")
    deep = np.rint(plain / 255 * (2**bits - 1)).astype(np.uint16)
    lossless = [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000]
    cv2.imwrite(path, deep[..., [2, 1, 0, 3][: plain.shape[2]]], lossless)
    with Image.open(path) as image:
        assert (max(high for _, high in image.getextrema()) <= 16) == (bits == 12)
    Image.fromarray(plain).save(tmp_path / "plain.png")
    seen, expected = read_image(path).astype(int), read_image(str(tmp_path / "plain.png")).astype(int)
    assert int(np.abs(seen - expected).max()) <= 2


def test_infinite_and_missing_levels_leave_the_others_as_they_are(tmp_path):
    levels = GREY.astype(np.float32)
    levels[0, :3] = np.nan, np.inf, -np.inf
    path = str(tmp_path / "grey.tiff")
    Image.fromarray(levels).save(path)
    seen = read_image(path)[..., 0]
    assert seen[0, :3].tolist() == [0, 255, 0]
    assert seen[1:].tolist() == GREY[1:].tolist()
