"""The headers of image files, read once and cached: the sizes, and whether a file has several images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.data.files.cache import cached, key_of_files
from training.data.files.decode import read_header
from training.process.resources import map_in_threads

SAMPLED = 100


def sample_sizes(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of up to a hundred of the images, evenly spread, int64 (N, 2)."""
    chosen = np.linspace(0, len(paths) - 1, min(len(paths), SAMPLED)).astype(int)
    return read_headers([paths[index] for index in chosen])[:, :2]


def read_headers(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of each upright image in pixels, and 1 if its file has more images, else 0, int64 (N, 3)."""
    headers = cached("sizes", key_of_files(paths, 2), lambda: map_in_threads(read_header, paths))
    return np.array(headers, dtype=np.int64)
