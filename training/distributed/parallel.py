"""Several processes that train one recipe together: the first starts the others, and none outlives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from training.distributed.rank import Rank
from training.errors import Diverged, UserError
from training.loop.job import Job
from training.process.memory import count_memory_kills

ROOT = Path(__file__).resolve().parents[2]
# -P and the first place on the path: the working folder may hold a `training/` of its own.
PROGRAM = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from training.train import follow; follow()"
PATIENCE = timedelta(minutes=30)  # of one rank with another that lives; a dead one is noticed at once
READY = "ready/{}"
GRACE_SECONDS = 10.0  # for others to end after the first, or to say why they failed
# What callers tell apart keeps its type on the way between processes; every other error becomes a RuntimeError.
ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (UserError, Diverged, MemoryError, OSError)}


@contextmanager
def lead(job: Job, count: int, device: str) -> Iterator[None]:
    """Be the first of `count` ranks; start the others, each of which calls `train_beside` with this job.

    Raises:
        RuntimeError: another rank's process died.
        MemoryError: the system killed it for memory. Or whatever another rank raised.
    """
    if count == 1:
        yield
        return
    from torch.distributed import FileStore

    # The ranks meet in a file of a private folder: unlike a port, no other user of the machine can reach it.
    with tempfile.TemporaryDirectory(prefix="technique-search-") as folder:
        path = str(Path(folder, "ranks"))
        store = FileStore(path, count)
        kills = count_memory_kills()
        others = [_start(job, Rank(number, count), path) for number in range(1, count)]
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
    _stay_on_this_machine()
    distributed.init_process_group(backend, store=store, rank=rank.number, world_size=rank.count, timeout=PATIENCE)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        sys.excepthook = hook  # torch's names the rank on each line


def follow(train_beside: Callable[[Any, Rank, Any], None]) -> None:
    """The program of every rank but the first."""
    message = json.loads(sys.stdin.buffer.readline())
    rank = Rank(**message["rank"])
    Thread(target=_end_with_leader, daemon=True).start()
    from torch.distributed import FileStore

    store = FileStore(message["store"], rank.count)
    try:
        train_beside(Job.from_json(message["job"]), rank, store)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the first rank raises it
        store.compare_set("error", "", _write_error(error, rank))  # unless another failed before
        os._exit(1)
    os._exit(0)  # taking modules apart would take seconds


def _start(job: Job, rank: Rank, store: str) -> subprocess.Popen[bytes]:
    # In a session of its own: Ctrl-C is the first rank's, and the loader workers can be ended with it.
    other = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert other.stdin is not None
    message = {"rank": asdict(rank), "store": store, "job": job.to_json()}
    with suppress(BrokenPipeError):  # it died already; its exit code says why
        other.stdin.write(json.dumps(message).encode() + b"\n")
        other.stdin.flush()  # and left open: it closes when this process ends, however it does
    return other


def _stay_on_this_machine() -> None:
    """Have the ranks of one machine listen on its loopback interface only, unless the user names another."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, loopback)


def _write_error(error: BaseException, rank: Rank) -> str:
    """An error as text, which can do no harm to who reads it."""
    import torch

    kind = next((name for name, known in ERRORS.items() if isinstance(error, known)), type(error).__name__)
    if isinstance(error, torch.OutOfMemoryError):
        kind = MemoryError.__name__
    note = f"On device {rank.number + 1} of {rank.count}:\n{traceback.format_exc()}"
    has_number = isinstance(error, OSError) and error.errno is not None
    arguments = [error.errno, error.strerror, error.filename] if has_number else [str(error)]  # type: ignore[attr-defined]
    return json.dumps({"kind": kind, "arguments": arguments, "note": note}, default=str)


def _read_error(text: str) -> Exception:
    found = json.loads(text)
    if known := ERRORS.get(found["kind"]):
        error = known(*found["arguments"])
    else:
        error = RuntimeError(f"{found['kind']}: {found['arguments'][0]}")
    error.add_note(found["note"])
    return error


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
        return _read_error(store.get("error").decode())
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
