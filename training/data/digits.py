"""scikit-learn's handwritten digits (Alpaydin and Kaynak 1998), enlarged from 8×8 to 32×32 RGB."""

from __future__ import annotations

import cv2
import numpy as np

from training.data.images import ImageData, ImagePart
from training.data.specs import Digits
from training.data.splits import split_stratified

SIDE = 32
HELD_OUT = 350  # of 1,797: validation with a standard error of about .01 at 95 %


def load_digits(spec: Digits) -> ImageData:
    from sklearn.datasets import load_digits as load  # slow to import

    bunch = load()
    whole = ImagePart(bunch.target.astype(np.int64), enlarge(bunch.images))
    test, val, train = split_stratified(whole.labels, (HELD_OUT, HELD_OUT), spec.split_seed)
    classes = tuple(str(name) for name in bunch.target_names)
    return ImageData(spec.name, classes, whole.select(train), whole.select(val), whole.select(test))


def enlarge(grey: np.ndarray) -> np.ndarray:
    """Grey images of 0 to 16, (N, 8, 8), to uint8 RGB, (N, 32, 32, 3)."""
    levels = [cv2.resize(image.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_LINEAR) for image in grey]
    scaled = np.rint(np.stack(levels) * (255 / 16)).clip(0, 255).astype(np.uint8)
    return np.repeat(scaled[..., None], 3, axis=3)
