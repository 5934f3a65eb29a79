"""Several processes that train one recipe together: the first starts the others, and none outlives it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from training.memory import count_memory_kills
from training.rank import Rank

ROOT = Path(__file__).resolve().parents[1]
# -P and the first place on the path: the working folder may hold a `training/` of its own.
PROGRAM = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from training.parallel import follow; follow()"
PATIENCE = timedelta(minutes=30)  # of one rank with another that lives; a dead one is noticed at once
READY = "ready/{}"
GRACE_SECONDS = 10.0  # for others to end after the first, or to say why they failed


@contextmanager
def lead(job: Any, count: int, device: str) -> Iterator[None]:
    """Be the first of `count` ranks; start the others, each of which calls `train_beside` with this job.

    Raises:
        RuntimeError: another rank's process died.
        MemoryError: the system killed it for memory. Or whatever another rank raised.
    """
    if count == 1:
        yield
        return
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    kills = count_memory_kills()
    others = [_start(job, Rank(number, count), store.port) for number in range(1, count)]
    try:
        _await_ready(others, store, kills)
        with connected(store, Rank(0, count), device):
            for other in others:
                Thread(target=_abort_without, args=[other], daemon=True).start()
            try:
                yield
            except RuntimeError as error:
                # Asked before this rank leaves, which would make the others fail in turn.
                raise _find_reason(others, store, kills, error) from error
        for other in others:
            with suppress(subprocess.TimeoutExpired):
                other.wait(GRACE_SECONDS)
    finally:
        for other in others:
            _end(other)


@contextmanager
def connected(store: Any, rank: Rank, device: str) -> Iterator[None]:
    """Have the ranks meet, and part again: a reused worker must not find itself in the last training's group."""
    import torch
    from torch import distributed

    if device == "cuda":
        torch.cuda.set_device(rank.number)
    if not rank.leads:
        store.set(READY.format(rank.number), "")
    backend, hook = "nccl" if device == "cuda" else "gloo", sys.excepthook
    distributed.init_process_group(backend, store=store, rank=rank.number, world_size=rank.count, timeout=PATIENCE)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        sys.excepthook = hook  # torch's names the rank on each line


def follow() -> None:
    """The program of every rank but the first."""
    rank, port, job = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_leader, daemon=True).start()
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", port, is_master=False)
    try:
        from training.train import train_beside

        train_beside(pickle.loads(job), rank, store)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the first rank raises it
        error.add_note(f"On device {rank.number + 1} of {rank.count}:\n{traceback.format_exc()}")
        store.compare_set("error", "", pickle.dumps(error).hex())  # unless another failed before
        os._exit(1)
    os._exit(0)  # taking modules apart would take seconds


def _start(job: Any, rank: Rank, port: int) -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C is the first rank's, and the loader workers can be ended with it.
    other = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert other.stdin is not None
    pickle.dump((rank, port, pickle.dumps(job)), other.stdin)
    other.stdin.flush()  # and left open: it closes when this process ends, however it does
    return other


def _end_with_leader() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def _await_ready(others: list[subprocess.Popen[bytes]], store: Any, kills: int) -> None:
    keys = [READY.format(number) for number in range(1, len(others) + 1)]
    while not store.check(keys):
        if any(other.poll() is not None for other in others):
            raise _find_reason(others, store, kills, RuntimeError("it ended before the training began"))
        time.sleep(0.02)


def _abort_without(other: subprocess.Popen[bytes]) -> None:
    """NCCL would wait for a dead rank; gloo notices by itself."""
    from torch import distributed

    if other.wait() and distributed.is_initialized() and distributed.get_backend() == "nccl":
        distributed.group.WORLD.abort()  # type: ignore[union-attr]


def _find_reason(others: list[subprocess.Popen[bytes]], store: Any, kills: int, error: RuntimeError) -> BaseException:
    """What ended the training: what another rank raised or died of, else this error. `kills`: for memory, before it."""
    deadline = time.monotonic() + GRACE_SECONDS
    while not (codes := [code for other in others if (code := other.poll())]) and time.monotonic() < deadline:
        time.sleep(0.02)
    if store.check(["error"]):
        return pickle.loads(bytes.fromhex(store.get("error").decode()))  # type: ignore[no-any-return]
    if not codes:
        return error
    field = f"data_parallel.devices={len(others) + 1}"
    if codes[0] == -signal.SIGKILL and count_memory_kills() > kills:
        return MemoryError(f"{field}: the system killed the process of one device for memory")
    how = f"was ended by signal {-codes[0]}" if codes[0] < 0 else f"ended with exit code {codes[0]}"
    return RuntimeError(f"{field}: the process of one device {how}.")


def _end(other: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(other.pid, signal.SIGKILL)
    other.wait()
    assert other.stdin is not None
    with suppress(BrokenPipeError):
        other.stdin.close()
