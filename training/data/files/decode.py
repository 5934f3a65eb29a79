"""Decode an image file of any format to uint8 RGB, as an image viewer shows it, and read the sizes of many, cached."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TypeVar

import numpy as np
from PIL import Image

from training.data.files.away import is_away
from training.data.files.cache import cached, key_of_files
from training.data.files.formats import HEAD_BYTES, can_read_heic, describe_format, is_heic
from training.data.files.grey_levels import Range, brighten, find_range, is_deep, scale_grey
from training.data.files.metadata import has_more_images, turn_upright, upright_size, without_metadata
from training.errors import DataAway, ImageError, printable
from training.process.resources import map_in_threads
from training.process.text_files import refuse_irregular

# The limits of every image that is read: folders, packed files, predictions. A file of 10 KB can have 10^8
# pixels. `analysis/export/served_model.py` repeats the limits, because MLflow copies that file alone.
MAX_PIXELS = 160_000_000  # the largest cameras take 151 million in one shot; 7 bytes each while one image is decoded
MAX_RATIO = 150  # of the sides; with a shorter side of 1,024, such an image still has fewer than MAX_PIXELS
SIZES_SAMPLED = 100  # images of a data set, for their usual size
# Others of Pillow's formats start programs (EPS) or have another size than their header says (ICO, ICNS).
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF")
_TOO_MANY = f"more than {MAX_PIXELS // 10**6} million pixels"
_STRIP_PIXELS = 2**22

Result = TypeVar("Result")

# Pillow warns about images that it can read, such as those with damaged EXIF data or very large ones, which
# `training.data.inspection.remarks` reports. The filter is global because images are decoded in threads.
warnings.filterwarnings("ignore", module=r"PIL\.")


class ImageTooLarge(ValueError):
    """An image that is too large by its header."""


class UnreadableImage(ImageError):
    """A file that is not an image, or is broken."""

    @property
    def reason(self) -> str:
        return str(self).partition("cannot be read (")[2].partition("). Repair")[0]


def read_image(path: str, reduce_to: int | None = None) -> np.ndarray:
    """Decode a file to uint8 (height, width, 3), upright; transparent pixels become white.

    Args:
        path: The image file.
        reduce_to: A JPEG may be decoded to a smaller size, which is several times faster. Its shorter side has at least
            this many pixels then.

    Raises:
        UnreadableImage: the file cannot be read; the message names it and a way out.
    """
    return _read(path, lambda image: _to_pixels(image, reduce_to))


def read_side(path: str) -> int:
    """Return the shorter side of an image in pixels, from its header alone.

    Raises:
        UnreadableImage: the header cannot be read; the message names the file and a way out.
    """
    return _read(path, lambda image: min(image.size))


def read_header(path: str) -> tuple[int, int, bool]:
    """Return height and width of the upright image in pixels, and whether the file has more images, such as pages.

    All is in the header, but for PNG without an orientation there, which may follow the pixels: that file is decoded.

    Raises:
        UnreadableImage: the header cannot be read; the message names the file and a way out.
    """
    return _read(path, lambda image: (*upright_size(image), has_more_images(image)))


def open_image(file: IO[bytes]) -> Image.Image:
    """Open an image, and refuse one that is too large by its header, before any pixel is decoded.

    Raises:
        ImageTooLarge: the image is too large; the message has its size and the limit.
        OSError: the file is not an image; Pillow raises other errors too.
    """
    try:
        image = Image.open(file, formats=FORMATS)
    except Image.UnidentifiedImageError:
        file.seek(0)
        if not (is_heic(file.read(HEAD_BYTES)) and can_read_heic()):
            raise
        file.seek(0)
        image = Image.open(file, formats=["HEIF"])
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ImageTooLarge(f"{width}×{height} pixels, {_TOO_MANY}")
    if max(image.size) > MAX_RATIO * min(image.size):
        raise ImageTooLarge(f"{width}×{height} pixels, one side more than {MAX_RATIO} times the other")
    return image


def _read(path: str, use: Callable[[Image.Image], Result]) -> Result:
    """Open a file, and return what `use` makes of the image.

    Raises:
        DataAway: the file is away with its disk.
        UnreadableImage: whatever the decoder raises; the message names the file and a way out.
    """
    try:
        refuse_irregular(path)
        return _decode(path, use)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - decoders raise errors of any kind for a broken file
        if is_away(path, error):
            raise DataAway(f"{printable(path)}: this image is away, perhaps with its disk ({error}).") from None
        raise UnreadableImage(
            f"{printable(path)}: this image cannot be read ({_name_reason(path, error)}). Repair or remove it, or set "
            "data.skip_unreadable=true to continue without such images."
        ) from None


def _decode(path: str, use: Callable[[Image.Image], Result]) -> Result:
    """Open an image, and return what `use` makes of it; if that fails, try again without the image's metadata."""
    try:
        # Not by its path: Pillow maps an uncompressed TIFF file then, and applies its orientation wrongly.
        with open(path, "rb") as file, open_image(file) as image:
            return use(image)
    except (MemoryError, ImageTooLarge):
        raise
    except Exception as error:
        with open(path, "rb") as file:
            plain = without_metadata(file.read())
        if plain is None:
            raise
        try:
            with open_image(io.BytesIO(plain)) as image:
                return use(image)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the pixels are broken too
            raise error from None


def _name_reason(path: str, error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        with open(path, "rb") as file:
            return describe_format(file.read(HEAD_BYTES))
    if isinstance(error, Image.DecompressionBombError):
        return _TOO_MANY
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


def _to_pixels(image: Image.Image, reduce_to: int | None) -> np.ndarray:
    if reduce_to is not None:
        factor = reduce_to / min(image.size)
        image.draft("RGB", (max(1, int(image.width * factor)), max(1, int(image.height * factor))))
    brighten(image)
    upright = turn_upright(image)
    levels = find_range(image, _cut(upright)) if is_deep(upright) else None
    pixels = np.empty((upright.height, upright.width, 3), np.uint8)
    top = 0
    for strip in _cut(upright):  # a conversion of the whole image would need several copies of it
        pixels[top : top + strip.height] = _to_rgb(strip, levels)
        top += strip.height
    return pixels


def _cut(image: Image.Image) -> Iterator[Image.Image]:
    rows = max(1, _STRIP_PIXELS // image.width)
    if image.height <= rows:
        yield image
        return
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def _to_rgb(image: Image.Image, levels: Range | None) -> np.ndarray:
    if levels is not None:
        return np.repeat(scale_grey(np.asarray(image), levels)[..., None], 3, axis=2)
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = Image.new("RGBA", layered.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, layered)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def sample_sizes(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of up to a hundred of the images, evenly spread, int64 (N, 2)."""
    chosen = np.linspace(0, len(paths) - 1, min(len(paths), SIZES_SAMPLED)).astype(int)
    return read_headers([paths[index] for index in chosen])[:, :2]


def read_headers(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of each upright image in pixels, and 1 if its file has more images, else 0, int64 (N, 3)."""
    headers = cached("sizes", key_of_files(paths, 2), lambda: map_in_threads(read_header, paths))
    return np.array(headers, dtype=np.int64)
