"""The headers of image files, read once and cached: the sizes, and whether a file has several images."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from training.data.files.cache import cached, key_of_files
from training.data.files.decode import read_header
from training.process.resources import count_cpus

SAMPLED = 100


def sample_sizes(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of up to a hundred of the images, evenly spread, int64 (N, 2)."""
    chosen = np.linspace(0, len(paths) - 1, min(len(paths), SAMPLED)).astype(int)
    return read_headers([paths[index] for index in chosen])[:, :2]


def read_headers(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of each upright image in pixels, and 1 if its file has more images, else 0, int64 (N, 3)."""

    def read_all() -> list[tuple[int, int, bool]]:
        with ThreadPoolExecutor(count_cpus()) as pool:
            return list(pool.map(read_header, paths))

    return np.array(cached("sizes", key_of_files(paths, 2), read_all), dtype=np.int64)
