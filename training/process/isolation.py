"""Isolate a training from the next one in the same process: random states, threads, numeric settings, memory."""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch.backends import cudnn


class _Settings(NamedTuple):
    threads: int
    dtype: torch.dtype
    products: str  # precision of float32 matrix products
    tf32_convolutions: bool
    benchmark: bool
    deterministic: bool


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in glibc's malloc.h
_KEPT_BYTES = 2**30

_depth = 0  # of isolations within each other, such as a range test within a training


@contextmanager
def isolated_process(seed: int, threads: int) -> Iterator[None]:
    """Run with a seed, a number of threads and default numeric settings; restore the previous state at the end."""
    global _depth
    before = _read_settings()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    gpu_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    seed_process(seed)
    if _depth == 0:
        _keep_freed_memory()
        gc.freeze()  # without it, the collections below scan all imported modules, which takes a third of a second
    _write_settings(_Settings(threads, torch.float32, "highest", False, False, False))
    _depth += 1
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if gpu_states:
            torch.cuda.set_rng_state_all(gpu_states)
        _write_settings(before)
        torch.compiler.reset()  # frees compiled models and resets the limit on the number of compilations
        gc.collect()
        _depth -= 1
        if _depth == 0:
            gc.unfreeze()
            give_memory_back()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _keep_freed_memory() -> None:
    """Let a step on a CPU take the memory that the step before it has freed.

    glibc gives each large tensor back to the system and gets new pages for the next one, which takes a third of a step
    (torch's Performance Tuning Guide names other allocators for the same reason).
    """
    if (library := _load_glibc()) is not None:
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_memory_back() -> None:
    """Return what is freed to the system, so that it counts in no peak of what comes."""
    if (library := _load_glibc()) is not None:
        library.malloc_trim(0)


@lru_cache(maxsize=1)
def _load_glibc() -> ctypes.CDLL | None:
    """Return the C library of the process if it is glibc, as on most Linux systems."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def seed_process(seed: int) -> None:
    """Seed Python, NumPy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def derive_seed(*numbers: int) -> int:
    """Combine several numbers into one seed; unlike a sum, this avoids collisions (NumPy's SeedSequence)."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _read_settings() -> _Settings:
    return _Settings(
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined] # defined at import
        cudnn.benchmark,
        cudnn.deterministic,
    )


def _write_settings(settings: _Settings) -> None:
    torch.set_num_threads(settings.threads)
    torch.set_default_dtype(settings.dtype)
    torch.set_float32_matmul_precision(settings.products)
    # The line above does not change convolutions, which use TF32 even at "highest". `conv.fp32_precision` is not used: if
    # it disagrees with `rnn.fp32_precision` and the flag below, reading the flag raises, and torch.export reads it.
    cudnn.allow_tf32 = settings.tf32_convolutions
    cudnn.benchmark = settings.benchmark
    cudnn.deterministic = settings.deterministic
