"""One training leaves nothing behind for the next in the same process: random states, threads, numeric settings, memory."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def isolated_process(seed: int, threads: int) -> Iterator[None]:
    """Run with a seed, a number of threads and plain numeric settings; put back what was there before."""
    before = _read_settings()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed_process(seed)
    _write_settings((threads, torch.float32, "highest", "ieee", False, False))
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        _write_settings(before)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def seed_process(seed: int) -> None:
    """Seed Python, NumPy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def derive_seed(*numbers: int) -> int:
    """One seed out of several numbers, without the collisions of adding them (NumPy's SeedSequence)."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _read_settings() -> tuple:
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.conv.fp32_precision,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    )


def _write_settings(settings: tuple) -> None:
    threads, dtype, products, convolutions, benchmark, deterministic = settings
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(products)
    # Not set by the line above, which leaves convolutions on TF32 even at "highest".
    torch.backends.cudnn.conv.fp32_precision = convolutions
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.deterministic = deterministic
