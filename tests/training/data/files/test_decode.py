import numpy as np
import pytest
from PIL import Image

from training.data.files.decode import UnreadableImage, read_image, read_side

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
