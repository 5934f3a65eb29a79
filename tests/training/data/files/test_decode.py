import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from training.data.files import decode
from training.data.files.decode import UnreadableImage, read_image, read_side
from training.data.pipelines.dali_loader import read_encoded

GRADIENT = np.linspace(0, 255, 24 * 16).reshape(24, 16).astype(np.uint8)
COLOUR = np.stack([GRADIENT, GRADIENT[::-1], np.full_like(GRADIENT, 40)], axis=-1)


def saved(tmp_path, image, name="image.png", **options):
    image.save(tmp_path / name, **options)
    return str(tmp_path / name)


def test_colour_grey_palette_and_binary_images_become_rgb(tmp_path):
    assert np.array_equal(read_image(saved(tmp_path, Image.fromarray(COLOUR))), COLOUR)
    grey = read_image(saved(tmp_path, Image.fromarray(GRADIENT)))
    assert np.array_equal(grey, np.repeat(GRADIENT[..., None], 3, axis=2))
    flat = Image.new("RGB", (4, 5), (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert (read_image(saved(tmp_path, flat)) == [10, 200, 30]).all()
    assert (read_image(saved(tmp_path, Image.new("1", (4, 5), 1))) == 255).all()


def test_deep_grey_is_scaled_and_not_clipped(tmp_path):
    deep = GRADIENT.astype(np.uint16) * 257
    expected = np.repeat(GRADIENT[..., None], 3, axis=2)
    assert np.array_equal(read_image(saved(tmp_path, Image.fromarray(deep))), expected)
    assert np.array_equal(read_image(saved(tmp_path, Image.fromarray(deep), "deep.tif")), expected)
    floats = Image.fromarray((GRADIENT / 255).astype(np.float32))
    assert np.array_equal(read_image(saved(tmp_path, floats, "float.tiff")), expected)


def test_transparent_pixels_become_white(tmp_path):
    pixels = np.dstack([COLOUR, np.full_like(GRADIENT, 255)])
    pixels[0, 0] = (0, 0, 0, 0)
    image = read_image(saved(tmp_path, Image.fromarray(pixels)))
    assert (image[0, 0] == 255).all()
    assert np.array_equal(image[1:], COLOUR[1:])
    grey = Image.merge("LA", [Image.new("L", (4, 4), 0), Image.new("L", (4, 4), 0)])
    assert (read_image(saved(tmp_path, grey)) == 255).all()


def test_cmyk_keeps_its_colours(tmp_path):
    red = Image.new("RGB", (16, 16), (250, 10, 10)).convert("CMYK")
    image = read_image(saved(tmp_path, red, "cmyk.jpg", quality=95))
    assert np.abs(image.reshape(-1, 3).mean(axis=0) - [250, 10, 10]).max() < 12


def test_a_photograph_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[274] = 6  # the camera was held on its side
    path = saved(tmp_path, Image.fromarray(COLOUR), "turned.png", exif=exif)
    assert np.array_equal(read_image(path), np.rot90(COLOUR, -1))


def test_a_large_jpeg_can_be_read_in_reduced_size(tmp_path):
    smooth = Image.fromarray(COLOUR).resize((640, 960))
    path = saved(tmp_path, smooth, "large.jpg")
    reduced = read_image(path, reduce_to=100)
    assert min(reduced.shape[:2]) in range(100, 200)
    assert np.abs(reduced.mean(axis=(0, 1)) - read_image(path).mean(axis=(0, 1))).max() < 1
    assert read_side(path) == 640


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty file"), (b"no image at all", "not an image"), (None, "no such file"), ("half", "truncated")],
)
def test_a_broken_file_is_named_with_the_reason_and_the_way_out(tmp_path, content, reason):
    file = tmp_path / "broken.jpg"
    if content == "half":
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(file)
        content = file.read_bytes()[: file.stat().st_size // 2]
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnreadableImage, match=rf"broken\.jpg: .*\(.*{reason}.*\).*data\.skip_unreadable=true"):
        read_image(str(file))


def test_a_name_that_is_not_utf8_can_still_be_printed(tmp_path):
    with pytest.raises(UnreadableImage) as caught:
        read_image(str(tmp_path) + "/caf\udce9.jpg")
    str(caught.value).encode("utf-8")


def png_of(width, height):
    """A PNG file of 70 bytes: its header has this size, and there are no pixels."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((13_000, 13_000), "13000×13000 pixels, more than 160 million"),
        ((20_000, 20_000), "more than 160 million pixels"),
        ((1, 5_000_000), "1×5000000 pixels, one side more than 150 times the other"),
        ((100_000_000, 1), "one side more than 150 times the other"),
    ],
)
def test_an_image_that_would_fill_the_memory_is_refused_by_its_header(tmp_path, size, words):
    (tmp_path / "large.png").write_bytes(png_of(*size))
    path = str(tmp_path / "large.png")
    for read in (read_image, read_side, read_encoded):
        with pytest.raises(UnreadableImage, match=rf"large\.png: this image cannot be read \(.*{words}"):
            read(path)


def test_a_photograph_of_144_million_pixels_is_accepted():
    assert decode.open_image(io.BytesIO(png_of(12_000, 12_000))).size == (12_000, 12_000)
    assert decode.open_image(io.BytesIO(png_of(3, 450))).size == (3, 450)


@pytest.mark.parametrize("name", ["drawing.eps", "icon.ico", "picture.tga"])
def test_formats_that_start_programs_or_hide_their_size_are_not_read(tmp_path, name):
    with pytest.raises(UnreadableImage, match="not an image|is not read"):
        read_image(saved(tmp_path, Image.fromarray(COLOUR), name))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16", "F"])
def test_an_image_that_is_converted_in_strips_has_the_same_pixels(tmp_path, mode, monkeypatch):
    image = (
        Image.fromarray(GRADIENT.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(COLOUR).convert(mode)
    )
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(GRADIENT))
    path = saved(tmp_path, image, "image.tiff")
    whole = read_image(path)
    monkeypatch.setattr(decode, "_STRIP_PIXELS", 100)
    assert whole.shape == COLOUR.shape
    assert np.array_equal(read_image(path), whole)


def test_decoding_takes_little_more_memory_than_one_copy_of_the_image(tmp_path):
    image = Image.new("RGBA", (4000, 3000), (1, 2, 3, 4))
    path = saved(tmp_path, image, compress_level=1)
    code = (
        "import resource, sys; from training.data.files.decode import read_image\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; read_image(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 12 * image.width * image.height  # bytes; 7 for the image, the rest for its strips
