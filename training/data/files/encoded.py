"""Image files as bytes that DALI decodes to what Pillow would show; what it would get wrong, Pillow decodes."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from training.data.files.decode import read_image, refuse_irregular, upright_size

_START, _END = b"\xff\xd8\xff", b"\xff\xd9"
_USUAL_MODES = ("RGB", "L")  # of JPEG files; CMYK comes out inverted in one decoder or the other


def read_encoded(path: str) -> tuple[np.ndarray, tuple[int, int]]:
    """Return a file's bytes, uint8 (N,), and height and width of the upright image.

    Raises:
        UnreadableImage: naming the file.
    """
    try:
        refuse_irregular(path)
        with open(path, "rb") as file:
            content = file.read()
        if content.startswith(_START) and _END in content[-1024:]:  # a cut file would be decoded with a grey rest
            with Image.open(io.BytesIO(content)) as image:
                if image.mode in _USUAL_MODES:
                    return np.frombuffer(content, np.uint8), upright_size(image)
    except (OSError, SyntaxError, ValueError):  # Pillow's reader below knows what to call it
        pass
    pixels = read_image(path)
    height, width = pixels.shape[:2]
    return np.frombuffer(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes(), np.uint8), (height, width)
