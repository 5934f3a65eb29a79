"""Decode an image file of any format to uint8 RGB, as an image viewer shows it."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from PIL import ExifTags, Image, ImageOps

from training.errors import UserError, printable
from training.process.text_files import refuse_irregular

# The limits of every image that is read: folders, packed files, uploads, predictions. A file of 10 KB can have 10^8
# pixels. `analysis/export/served_model.py` repeats the limits, because MLflow copies that file alone.
MAX_PIXELS = 160_000_000  # the largest cameras take 151 million in one shot; 7 bytes each while one image is decoded
MAX_RATIO = 150  # of the sides; with a shorter side of 1,024, such an image still has fewer than MAX_PIXELS
# Others of Pillow's formats start programs (EPS) or have another size than their header says (ICO, ICNS).
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF")
_TOO_MANY = f"more than {MAX_PIXELS // 10**6} million pixels"
_STRIP_PIXELS = 2**22

# Pillow warns about images that it can read, such as those with damaged EXIF data or very large ones, which
# `training.data.inspection.remarks` reports. The filter is global because images are decoded in threads.
warnings.filterwarnings("ignore", module=r"PIL\.")

# The errors that Pillow raises for broken files. A MemoryError is not among them.
_BROKEN = (
    *(OSError, SyntaxError, ValueError, TypeError, IndexError, KeyError, OverflowError),
    *(struct.error, zlib.error, Image.DecompressionBombError),
)


class UnreadableImage(UserError):
    """A file that is not an image, or is broken."""

    def __init__(self, message: str) -> None:
        # torch rebuilds the exception of a loader worker from its traceback: keep only the sentence in the last line.
        super().__init__(message.strip().rpartition("UnreadableImage: ")[2])

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
    with _opened(path) as image:
        return _to_pixels(image, reduce_to)


def decode_image(content: bytes, reduce_to: int | None = None) -> np.ndarray:
    """Decode the bytes of an image file as `read_image` does.

    Raises:
        UnreadableImage: they are not an image, or are damaged.
    """
    try:
        with open_image(io.BytesIO(content)) as image:
            return _to_pixels(image, reduce_to)
    except Image.UnidentifiedImageError:
        reason = "not an image" if content else "empty file"
    except _BROKEN as error:
        reason = _name_reason("", error)
    raise UnreadableImage(f"this image cannot be read ({reason}). Repair or remove it.")


def read_side(path: str) -> int:
    """Return the shorter side of an image in pixels, from its header alone.

    Raises:
        UnreadableImage: the header cannot be read; the message names the file and a way out.
    """
    with _opened(path) as image:
        return min(image.size)


def read_size(path: str) -> tuple[int, int]:
    """Return height and width of the upright image in pixels, from its header alone.

    Raises:
        UnreadableImage: the header cannot be read; the message names the file and a way out.
    """
    with _opened(path) as image:
        return upright_size(image)


def open_image(file: str | IO[bytes]) -> Image.Image:
    """Open an image, and refuse one that is too large by its header, before any pixel is decoded.

    Raises:
        ValueError: the image is too large; the message has its size and the limit.
        OSError: the file is not an image; Pillow raises other errors too.
    """
    image = Image.open(file, formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width}×{height} pixels, {_TOO_MANY}")
    if max(image.size) > MAX_RATIO * min(image.size):
        raise ValueError(f"{width}×{height} pixels, one side more than {MAX_RATIO} times the other")
    return image


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return height and width in pixels, after the orientation from the EXIF data is applied."""
    width, height = image.size
    return (width, height) if image.getexif().get(ExifTags.Base.Orientation, 1) > 4 else (height, width)


@contextmanager
def _opened(path: str) -> Iterator[Image.Image]:
    try:
        refuse_irregular(path)
        with open_image(path) as image:
            yield image
    except _BROKEN as error:
        raise UnreadableImage(
            f"{printable(path)}: this image cannot be read ({_name_reason(path, error)}). "
            "Repair or remove it, or set data.skip_unreadable=true to continue without such images."
        ) from None


def _name_reason(path: str, error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "empty file" if os.path.getsize(path) == 0 else "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return _TOO_MANY
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


def _to_pixels(image: Image.Image, reduce_to: int | None) -> np.ndarray:
    if reduce_to is not None:
        factor = reduce_to / min(image.size)
        image.draft("RGB", (max(1, int(image.width * factor)), max(1, int(image.height * factor))))
    ImageOps.exif_transpose(image, in_place=True)
    rows = max(1, _STRIP_PIXELS // image.width)
    if image.height <= rows:
        return _to_rgb(image)
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top in range(0, image.height, rows):  # a conversion of the whole image would need several copies of it
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        pixels[top : top + rows] = _to_rgb(strip)
    return pixels


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode.startswith(("I", "F")):
        return np.repeat(_scale_grey(np.asarray(image))[..., None], 3, axis=2)
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = Image.new("RGBA", layered.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, layered)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _scale_grey(values: np.ndarray) -> np.ndarray:
    """Scale deep grey levels to 8 bits. Pillow clips them at 255, which turns most 16-bit images white."""
    # Floating-point images have levels in [0, 1] by convention, integers up to 65,535 = 257 · 255.
    levels = np.nan_to_num(values) * 255.0 if values.dtype.kind == "f" else values / 257.0
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
