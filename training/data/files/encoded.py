"""Read image files as bytes for DALI. Pillow decodes those that DALI would decode differently."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from training.data.files.decode import read_image, refuse_irregular, upright_size

_START, _END = b"\xff\xd8\xff", b"\xff\xd9"
_USUAL_MODES = ("RGB", "L")  # modes of JPEG files; some decoders invert CMYK


def read_encoded(path: str) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the bytes of a file, uint8 (N,), and height and width of the upright image in pixels.

    Raises:
        UnreadableImage: the file cannot be read; the message names it.
    """
    try:
        refuse_irregular(path)
        with open(path, "rb") as file:
            content = file.read()
        if content.startswith(_START) and _END in content[-1024:]:  # DALI decodes a truncated file with a grey rest
            with Image.open(io.BytesIO(content)) as image:
                if image.mode in _USUAL_MODES:
                    return np.frombuffer(content, np.uint8), upright_size(image)
    except (OSError, SyntaxError, ValueError):  # read_image below raises an error with the reason
        pass
    pixels = read_image(path)
    height, width = pixels.shape[:2]
    return np.frombuffer(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes(), np.uint8), (height, width)
