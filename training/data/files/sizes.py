"""The sizes of images in files, read from their headers and cached."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from training.data.files.cache import cached, key_of_files
from training.data.files.decode import read_size
from training.process.resources import count_cpus

SAMPLED = 100


def sample_sizes(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of up to a hundred of the images, evenly spread, int64 (N, 2)."""
    chosen = np.linspace(0, len(paths) - 1, min(len(paths), SAMPLED)).astype(int)
    return read_sizes([paths[index] for index in chosen])


def read_sizes(paths: Sequence[str]) -> np.ndarray:
    """Return height and width of each upright image in pixels, int64 (N, 2)."""

    def read_all() -> list[tuple[int, int]]:
        with ThreadPoolExecutor(count_cpus()) as pool:
            return list(pool.map(read_size, paths))

    return np.array(cached("sizes", key_of_files(paths, 1), read_all), dtype=np.int64)
