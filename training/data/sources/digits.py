"""scikit-learn's handwritten digits (Alpaydin and Kaynak 1998), enlarged from 8×8 to 32×32 RGB."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from training.contract.specs import Data
from training.data.files.images import ImageData, ImagePart

if TYPE_CHECKING:
    import numpy as np

SIDE = 32
HELD_OUT = 350  # images each for validation and test, out of 1,797: a standard error of about .01 at 95 %


class Digits(Data):
    """scikit-learn's 1,797 handwritten digits, enlarged to 32×32 RGB; no download is needed."""

    name: Literal["digits"] = "digits"

    def load(self) -> ImageData:
        data = load_split(self.split_seed)
        if self.split_test:
            return data
        import numpy as np

        return replace(data, train=data.train.join(data.test), test=data.test.select(np.array([], int)))


@lru_cache(maxsize=1)
def load_split(seed: int) -> ImageData:
    """Load all digits, with a split that depends on this seed."""
    import numpy as np

    from training.data.splits import split_stratified

    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    # Reading the file takes 30 ms; importing scikit-learn takes seconds in each worker.
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")  # (1797, 65): 64 grey levels from 0 to 16, and the digit
    whole = ImagePart(table[:, -1].astype(np.int64), enlarge(table[:, :-1].reshape(-1, 8, 8)))
    test, val, train = split_stratified(whole.labels, (HELD_OUT, HELD_OUT), seed)
    classes = tuple(str(digit) for digit in range(10))
    return ImageData("digits", classes, whole.select(train), whole.select(val), whole.select(test))


def enlarge(grey: np.ndarray) -> np.ndarray:
    """Turn grey levels from 0 to 16 (N, 8, 8) into uint8 RGB (N, 32, 32, 3)."""
    import cv2
    import numpy as np

    levels = [cv2.resize(image.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_LINEAR) for image in grey]
    scaled = np.rint(np.stack(levels) * (255 / 16)).clip(0, 255).astype(np.uint8)
    return np.repeat(scaled[..., None], 3, axis=3)
