"""scikit-learn's handwritten digits (Alpaydin and Kaynak 1998), enlarged from 8×8 to 32×32 RGB."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np

from training.contract.specs import Digits
from training.data.files.images import ImageData, ImagePart
from training.data.sources.splits import split_stratified

SIDE = 32
HELD_OUT = 350  # images each for validation and test, out of 1,797: a standard error of about .01 at 95 %


def load_digits(spec: Digits) -> ImageData:
    """Load all digits and split them; `spec.train_size` is not applied."""
    table = _read_table()
    whole = ImagePart(table[:, -1].astype(np.int64), enlarge(table[:, :-1].reshape(-1, 8, 8)))
    test, val, train = split_stratified(whole.labels, (HELD_OUT, HELD_OUT), spec.split_seed)
    classes = tuple(str(digit) for digit in range(10))
    return ImageData(spec.name, classes, whole.select(train), whole.select(val), whole.select(test))


def _read_table() -> np.ndarray:
    """Return one row per image, (1797, 65): 64 grey levels from 0 to 16, and the digit."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    # Reading the file takes 30 ms; importing scikit-learn takes seconds in each worker.
    return np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")


def enlarge(grey: np.ndarray) -> np.ndarray:
    """Turn grey levels from 0 to 16 (N, 8, 8) into uint8 RGB (N, 32, 32, 3)."""
    levels = [cv2.resize(image.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_LINEAR) for image in grey]
    scaled = np.rint(np.stack(levels) * (255 / 16)).clip(0, 255).astype(np.uint8)
    return np.repeat(scaled[..., None], 3, axis=3)
