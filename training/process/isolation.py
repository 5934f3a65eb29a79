"""One training leaves nothing behind for the next in the same process: random states, threads, numeric settings, memory."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.backends import cudnn


@contextmanager
def isolated_process(seed: int, threads: int) -> Iterator[None]:
    """Run with a seed, a number of threads and plain numeric settings; put back what was there before."""
    before = _read_settings()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    gpu_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    seed_process(seed)
    gc.freeze()  # looking through all that is imported would take a third of a second at the end
    _write_settings((threads, torch.float32, "highest", False, False, False))
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if gpu_states:
            torch.cuda.set_rng_state_all(gpu_states)
        _write_settings(before)
        torch.compiler.reset()  # compiled models, and the count of compilations after which torch gives up
        gc.collect()
        gc.unfreeze()
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


def _read_settings() -> tuple[Any, ...]:
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined] # made at import
        cudnn.benchmark,
        cudnn.deterministic,
    )


def _write_settings(settings: tuple[Any, ...]) -> None:
    threads, dtype, products, convolutions, benchmark, deterministic = settings
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(products)
    # Not set by the line above, which leaves convolutions on TF32 even at "highest". Not by `conv.fp32_precision`: without
    # `rnn` and the flag below in agreement, reading the flag is an error, and torch.export reads it.
    cudnn.allow_tf32 = convolutions
    cudnn.benchmark = benchmark
    cudnn.deterministic = deterministic
