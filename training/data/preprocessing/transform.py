"""Turn images of any size into the model's input: resize, centre crop and normalise, as timm does for evaluation."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import cv2
import numpy as np
import torch
from PIL import Image

from training.contract.specs import Preprocessing
from training.data.files.cache import key_of_files
from training.data.files.decode import MAX_PIXELS
from training.data.files.images import ImageFiles
from training.data.files.pixel_store import cache_limit, shared_array
from training.process.resources import map_in_threads

logger = logging.getLogger(__name__)

KEPT_BYTES = 256 * 2**20  # larger sets of images are prepared in every epoch, smaller ones once

_WHOLE_PIXELS = 2**22  # larger images are resized in strips; a photograph has fewer pixels in the model's size


def fit(image: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Resize an image by the crop mode, as timm does, and keep the centre: uint8 (side, side, 3)."""
    if is_fitting(image, preprocessing):
        return image
    side = preprocessing.side
    height, width = image.shape[:2]
    size = resized_size((width, height), preprocessing)
    left, top = find_corner(size[0], side), find_corner(size[1], side)
    # Pillow smooths an image that it shrinks; OpenCV would leave aliases.
    whole, resampling = Image.fromarray(image), Image.Resampling[preprocessing.interpolation.upper()]
    if size[0] * size[1] > MAX_PIXELS:  # resize the centre alone; for others this could change a level by rounding
        scale_x, scale_y = width / size[0], height / size[1]
        box = (left * scale_x, top * scale_y, (left + side) * scale_x, (top + side) * scale_y)
        return np.asarray(whole.resize((side, side), resampling, box))
    if size[0] * size[1] > _WHOLE_PIXELS and min(size) >= side:
        return _fit_thin(whole, size, (left, top), side, resampling)
    square = Image.new("RGB", (side, side), fill_colour(preprocessing))
    square.paste(whole.resize(size, resampling), (-left, -top))
    return np.asarray(square)


def _fit_thin(
    image: Image.Image, size: tuple[int, int], corner: tuple[int, int], side: int, resampling: Image.Resampling
) -> np.ndarray:
    """Resize and crop as `fit` does, to the same pixels, without the whole resized image, most of which is cut off.

    Pillow resizes the rows, then the columns, and each row or column alone. So strips of them give the same.
    """
    (width, height), (left, top) = size, corner
    rows = max(1, _WHOLE_PIXELS // width)
    narrow = Image.new("RGB", (side, image.height))
    for start in range(0, image.height, rows):
        end = min(start + rows, image.height)
        strip = image.crop((0, start, image.width, end)).resize((width, end - start), resampling)
        narrow.paste(strip.crop((left, 0, left + side, strip.height)), (0, start))
    columns = max(1, _WHOLE_PIXELS // height)
    square = Image.new("RGB", (side, side))
    for start in range(0, side, columns):
        end = min(start + columns, side)
        strip = narrow.crop((start, 0, end, image.height)).resize((end - start, height), resampling)
        square.paste(strip.crop((0, top, strip.width, top + side)), (start, 0))
    return np.asarray(square)


def fit_all(images: np.ndarray | ImageFiles, preprocessing: Preprocessing) -> np.ndarray | None:
    """Fit all images once; files go into the shared cache. Return None if the result would be too large."""
    side = preprocessing.side
    size = len(images) * 3 * side**2
    if isinstance(images, ImageFiles):
        return decode_all(images, side, lambda image: fit(image, preprocessing), preprocessing) if fits(size) else None
    if is_fitting(images[0], preprocessing):
        return images
    return np.stack([fit(image, preprocessing) for image in images]) if size <= KEPT_BYTES else None


def squeeze_all(images: ImageFiles, side: int, preprocessing: Preprocessing) -> np.ndarray:
    """Resize every image to a square without cropping, uint8 (N, side, side, 3), for crops that are drawn later."""

    def squeeze(image: np.ndarray) -> np.ndarray:
        if image.shape[:2] == (side, side):
            return image
        resampling = Image.Resampling[preprocessing.interpolation.upper()]
        return np.asarray(Image.fromarray(image).resize((side, side), resampling))

    return decode_all(images, side, squeeze, "squeezed", preprocessing.interpolation)


def decode_all(
    images: ImageFiles, side: int, prepare: Callable[[np.ndarray], np.ndarray], *settings: object
) -> np.ndarray:
    """Decode files in parallel into uint8 (N, side, side, 3), shared by all processes of this machine.

    `prepare` turns a decoded image into uint8 (side, side, 3); `settings` are everything that its result depends on.
    """

    def fill(pixels: np.ndarray) -> None:
        logger.info("Decoding %d images once: %d MB in the cache.", len(images), pixels.nbytes >> 20)

        def decode(index: int) -> None:
            pixels[index] = prepare(images[index])

        map_in_threads(decode, range(len(images)))  # after the first broken file or Ctrl-C, it skips the others

    key = key_of_files(images.paths, "pixels", 2, side, images.reduce_to, *map(repr, settings))
    return shared_array(key, (len(images), side, side, 3), fill)


def fits(size: int) -> bool:
    """Return whether `size` bytes of pixels may be stored on this machine."""
    return size <= cache_limit() // 2  # the other half is for the other parts of the data


def resized_side(preprocessing: Preprocessing) -> int:
    """Return the side, in pixels, to which an image is resized before the crop; `crop_mode` says which of its sides."""
    side, crop = preprocessing.side, preprocessing.crop
    assert not isinstance(crop, str)
    return math.floor(side / crop)


def resized_size(size: tuple[int, int], preprocessing: Preprocessing) -> tuple[int, int]:
    """Return the width and height to which an image (width, height) is resized before the crop, in pixels."""
    side, (width, height) = resized_side(preprocessing), size
    if preprocessing.crop_mode == "squash":
        return side, side
    if preprocessing.crop_mode == "border":
        ratio = max(size) / side
        return max(1, round(width / ratio)), max(1, round(height / ratio))
    factor = side / min(size)
    return max(side, int(width * factor)), max(side, int(height * factor))


def find_corner(length: int, side: int) -> int:
    """Return where a crop of `side` pixels from the centre begins; it is negative if there are fewer pixels."""
    return round((length - side) / 2) if length >= side else -((side - length) // 2)


def fill_colour(preprocessing: Preprocessing) -> tuple[int, int, int]:
    """Return the colour of a border: the mean, which is 0 for the model."""
    red, green, blue = (round(255 * float(level)) for level in preprocessing.mean)
    return red, green, blue


def is_fitting(image: np.ndarray, preprocessing: Preprocessing) -> bool:
    side = preprocessing.image_size
    return image.shape[:2] == (side, side) and preprocessing.crop == 1.0


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> torch.Tensor:
    """Turn uint8 (N, side, side, 3) into float32 (N, 3, side, side) with mean 0 and deviation 1 over the data.

    This uses OpenCV's tables, because torch splits even a small batch over threads, 90 times slower on busy cores.
    """
    count, height, width, _ = pixels.shape
    images = np.empty((count, 3, height, width), np.float32)
    means, deviations = (np.array(colours, dtype=np.float64) for colours in (preprocessing.mean, preprocessing.std))
    tables = ((np.arange(256) / 255 - means[:, None]) / deviations[:, None]).astype(np.float32)
    for colour, table in enumerate(tables):
        rows = pixels[..., colour].reshape(count * height, width)
        images[:, colour] = cv2.LUT(rows, table).reshape(count, height, width)  # half as long as np.take
    return torch.from_numpy(images)
