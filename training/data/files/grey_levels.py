"""Levels of more than 8 bits: where black and white are, and their scaling.

Pillow clips grey levels at 255, and of colours it keeps the upper 8 bits of 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import cv2
import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin

Range = tuple[float, float]  # the levels of black and of white

_WHITE_IS_ZERO = 0  # of the TIFF tag PhotometricInterpretation
_FULL = (2.0**8 - 1, 2.0**12 - 1, 2.0**16 - 1)  # 12 bits in 16 are usual in microscopes and medicine


def is_deep(image: Image.Image) -> bool:
    return image.mode.startswith(("I", "F"))


def brighten(image: Image.Image) -> None:
    """Scale an opened colour image of 16 bits a level as grey images are, if it uses 12 bits at most, or is JPEG 2000."""
    if is_deep(image) or not isinstance(image, ImageFile.ImageFile):
        return
    # Of JPEG 2000 and PPM, Pillow does not say the bits.
    if ";16" not in str(image.tile) and image.format not in ("JPEG2000", "PPM"):
        return
    assert image.fp is not None  # it is open
    place = image.fp.tell()
    image.fp.seek(0)
    content = np.frombuffer(image.fp.read(), np.uint8)
    image.fp.seek(place)
    image.load()
    if np.asarray(image.convert("RGB")).max() > (_FULL[1] + 1) // 2**8 and image.format != "JPEG2000":
        return  # of JPEG 2000, Pillow 13 shows white as black
    levels = cv2.imdecode(content, cv2.IMREAD_UNCHANGED)  # blue, green, red, and perhaps alpha
    if levels is None or levels.dtype != np.uint16 or levels.shape[:2] != (image.height, image.width):
        return
    parts = [part for part in (levels[..., 2::-1], levels[..., 3:]) if part.size]
    scaled = [scale_grey(part, fit_range(0.0, float(part.max()), is_float=False)) for part in parts]
    image.paste(Image.fromarray(np.concatenate(scaled, axis=2)).convert(image.mode))


def find_range(image: Image.Image, strips: Iterator[Image.Image]) -> Range:
    """Return the levels of black and white of a decoded deep image: what its file says, else what fits its levels.

    `strips` are the same image in parts.
    """
    extremes = [extreme for strip in strips if (extreme := _extremes(np.asarray(strip))) is not None]
    low, high = min((low for low, _ in extremes), default=0.0), max((high for _, high in extremes), default=0.0)
    tags = image.tag_v2 if isinstance(image, TiffImagePlugin.TiffImageFile) else {}
    black, white = _read_range(tags) or fit_range(low, high, image.mode == "F")
    return (white, black) if _read_number(tags.get(262)) == _WHITE_IS_ZERO else (black, white)


def fit_range(low: float, high: float, is_float: bool) -> Range:
    """Return the usual levels of black and white for levels from `low` to `high`."""
    if low < 0:
        return (-1.0, 1.0) if is_float and low >= -1 and high <= 1 else (low, max(high, low + 1))
    if is_float and high <= 1:
        return 0.0, 1.0
    return 0.0, next((full for full in _FULL if high <= full), high)


def scale_grey(values: np.ndarray, levels: Range) -> np.ndarray:
    """Scale deep grey levels to 8 bits."""
    black, white = levels
    scaled = (np.nan_to_num(values, posinf=max(levels), neginf=min(levels)) - black) * (255.0 / (white - black))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def _extremes(values: np.ndarray) -> Range | None:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return (float(finite.min()), float(finite.max())) if finite.size else None


def _read_range(tags: Mapping[int, object]) -> Range | None:
    """Return the range that the tags of a TIFF file name: SMinSampleValue and SMaxSampleValue, or the bits of a level."""
    low, high = (_read_number(tags.get(tag)) for tag in (340, 341))
    if high is not None and high > (low or 0.0):
        return low or 0.0, high
    bits = _read_number(tags.get(258))
    return (0.0, 2**bits - 1) if bits is not None and 8 < bits < 16 else None


def _read_number(value: object) -> float | None:
    first = value[0] if isinstance(value, tuple) and value else value
    return float(first) if isinstance(first, int | float) and abs(first) < 2**32 else None
