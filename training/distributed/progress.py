"""The progress of all ranks, in a table that they share, so that a rank that hangs is noticed.

A time limit on the exchange between ranks is not enough: a rank may wait there for long while another writes a checkpoint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import lightning.pytorch as pl
import numpy as np

from training.distributed.rank import Rank

# Largest times between two marks of a rank that does not hang.
STEP_SECONDS = 90.0
COMPILED_STEP_SECONDS = 600.0  # every step of a training with compilation may have to compile
OTHER_SECONDS = 1800.0  # outside of steps: data, weights, checkpoints, reports
LOOK_SECONDS = 1.0
END_SECONDS = 25.0  # time that a process has to end by itself after another rank has ended

MARKS, LIMIT = 0, 1  # columns of the table: number of marks, and seconds within which the next one comes

_own: np.ndarray | None = None  # the row of this process


def open_table(folder: Path, count: int, is_new: bool = False) -> np.ndarray:
    """Map the table of `count` ranks, a file in their private folder, into memory: float64, (ranks, 2)."""
    table = np.memmap(folder / "progress", np.float64, "w+" if is_new else "r+", shape=(count, 2))
    if is_new:
        table[:, LIMIT] = OTHER_SECONDS
    return table


@contextmanager
def recorded(table: np.ndarray, rank: Rank) -> Iterator[None]:
    """Record the progress of this process in its row of the table."""
    global _own
    _own = table[rank.number]
    try:
        yield
    finally:
        _own = None


def mark(limit_seconds: float | None = None) -> None:
    """Record progress. With a limit, it holds for the next mark and for those after it."""
    if _own is not None:
        if limit_seconds is not None:
            _own[LIMIT] = limit_seconds
        _own[MARKS] += 1


@contextmanager
def allowing(limit_seconds: float | None) -> Iterator[None]:
    """Mark the begin and the end of something that may take so long; None keeps the limit, for a rank that only waits.

    All ranks call this, so that the one with the fewest marks is the one that hangs.
    """
    before = None if _own is None else float(_own[LIMIT])
    mark(limit_seconds)
    try:
        yield
    finally:
        mark(before)


class ProgressMarks(pl.Callback):
    """Marks the steps of training and validation."""

    def __init__(self, step_seconds: float) -> None:
        self.step_seconds = step_seconds

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        mark(self.step_seconds)

    def _mark(self, *_: object, **__: object) -> None:
        mark()

    on_train_batch_start = on_before_backward = on_train_batch_end = _mark
    on_validation_batch_start = on_validation_batch_end = _mark

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        mark(OTHER_SECONDS)


def await_hang(table: np.ndarray, is_over: Event) -> str | None:
    """Wait until a rank hangs, and return a sentence about it; None when the training is over.

    It counts looks instead of reading a clock, because all processes may have been suspended together.
    """
    before, quiet = table.copy(), np.zeros(len(table))
    while not is_over.wait(LOOK_SECONDS):
        now = table.copy()
        quiet = np.where(now[:, MARKS] == before[:, MARKS], quiet + LOOK_SECONDS, 0)
        if (now[:, LIMIT] != before[:, LIMIT]).any():
            quiet[:] = 0  # the ranks may have waited for the one whose limit has changed
        before, limit = now, now[:, LIMIT].max()
        if quiet.max() > limit:
            behind = np.flatnonzero(now[:, MARKS] == now[:, MARKS].min())
            who = f"device {behind[0] + 1} hangs: it" if len(behind) == 1 else "a device hangs: all of them"
            return f"data_parallel.devices={len(table)}: {who} made no progress for {quiet.max():.0f} s."
    return None


def watch(table: np.ndarray, is_over: Event, end_others: Callable[[str], None]) -> None:
    """End the other ranks when a rank hangs; if then this process does not end the training, it is the one that hangs."""
    if (sentence := await_hang(table, is_over)) is None:
        return
    end_others(sentence)
    if not is_over.wait(END_SECONDS):
        # A thread that hangs cannot raise an error, so only the end of the process is left.
        print(f"{sentence} The process ends.", file=sys.stderr, flush=True)
        os._exit(1)
