"""Train one recipe in several processes: the first starts the others, and all of them end with it."""

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
from threading import Event, Thread
from typing import TYPE_CHECKING

from training.distributed.progress import open_table, recorded, watch
from training.distributed.rank import Rank
from training.errors import DataAway, Diverged, LostDevice, UserError, first_line
from training.loop.job import TrainingJob
from training.process.resources import count_memory_kills

if TYPE_CHECKING:
    from torch.distributed import Store

ROOT = Path(__file__).resolve().parents[2]
# -P and the first place on the path are needed because the working folder may contain another `training/`.
PROGRAM = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from training.distributed.parallel import follow; "
    "from training.train import train_beside; follow(train_beside)"
)
# Time that a rank waits for a live one. A dead one is noticed at once, and one that hangs by its missing progress.
PATIENCE = timedelta(minutes=30)
READY = "ready/{}"
GRACE_SECONDS = 10.0  # time that the first rank waits for the others to end or to report their error
# Callers handle these errors differently, so they keep their type between processes. Others become a RuntimeError.
# A subclass stands before its base.
ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (DataAway, UserError, Diverged, MemoryError, OSError)
}


@contextmanager
def lead(job: TrainingJob, count: int, device: str) -> Iterator[None]:
    """Lead a training as the first of `count` ranks. Start the other processes; each trains beside it with this job.

    Raises:
        LostDevice: the process of another rank died or hangs.
        MemoryError: the system killed the process of another rank for memory.
        Exception: another rank raised it; the types in `ERRORS` are kept.
    """
    if count == 1:
        yield
        return
    from torch.distributed import FileStore

    # The ranks connect through a file in a private folder: other users of the machine cannot reach it, unlike a port.
    with tempfile.TemporaryDirectory(prefix="technique-search-") as folder:
        path = str(Path(folder, "ranks"))
        store, table, is_over, hangs = FileStore(path, count), open_table(Path(folder), count, True), Event(), []
        kills = count_memory_kills()
        others = [_start(job, Rank(number, count), path) for number in range(1, count)]

        def end_others(sentence: str) -> None:
            hangs.append(sentence)
            for other in others:
                _kill(other)

        try:
            _await_ready(others, store, kills)
            with recorded(table, Rank(0, count)), connected(store, Rank(0, count), device):
                for other in others:
                    Thread(target=_abort_without, args=[other], daemon=True).start()
                Thread(target=watch, args=[table, is_over, end_others], daemon=True).start()
                try:
                    yield
                except RuntimeError as error:
                    if hangs:
                        raise LostDevice(hangs[0]) from error
                    # Find the reason before this rank leaves the group, because then the others fail too.
                    raise _find_reason(others, store, kills, error) from error
            for other in others:
                with suppress(subprocess.TimeoutExpired):
                    other.wait(GRACE_SECONDS)
        finally:
            is_over.set()
            for other in others:
                _end(other)


@contextmanager
def connected(store: Store, rank: Rank, device: str) -> Iterator[None]:
    """Join the group of all ranks, and leave it at the end, so that a reused worker process can join another."""
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
        sys.excepthook = hook  # torch has replaced it by one that prints the rank on each line


def follow(train_beside: Callable[[TrainingJob, Rank, Store], None]) -> None:
    """Run the program of every rank except the first."""
    message = json.loads(sys.stdin.buffer.readline())
    rank = Rank(**message["rank"])
    Thread(target=_end_with_leader, daemon=True).start()
    from torch.distributed import FileStore

    store, table = FileStore(message["store"], rank.count), open_table(Path(message["store"]).parent, rank.count)
    try:
        with recorded(table, rank):
            train_beside(TrainingJob.from_json(message["job"]), rank, store)
    except BaseException as error:  # noqa: BLE001 - the first rank raises it
        store.compare_set("error", "", _write_error(error, rank))  # the first error is kept
        os._exit(1)
    os._exit(0)  # a normal exit takes seconds


def _start(job: TrainingJob, rank: Rank, store: str) -> subprocess.Popen[bytes]:
    # A new session: Ctrl-C reaches the first rank only, and the loader workers can be ended with their process.
    other = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert other.stdin is not None
    message = {"rank": asdict(rank), "store": store, "job": job.to_json()}
    with suppress(BrokenPipeError):  # it has died; the exit code gives the reason
        other.stdin.write(json.dumps(message).encode() + b"\n")
        other.stdin.flush()  # stdin stays open: it closes when this process ends in any way
    return other


def _stay_on_this_machine() -> None:
    """Let the ranks listen on the loopback interface only, unless the user has set another."""
    if loopback := next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None):
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, loopback)


def _write_error(error: BaseException, rank: Rank) -> str:
    """Return an error as text; unlike a pickle, reading it cannot run code."""
    import torch

    error_name = next((name for name, known in ERRORS.items() if isinstance(error, known)), type(error).__name__)
    if isinstance(error, torch.OutOfMemoryError):
        error_name = MemoryError.__name__
    note = f"On device {rank.number + 1} of {rank.count}:\n{traceback.format_exc()}"
    has_number = isinstance(error, OSError) and error.errno is not None
    arguments = [error.errno, error.strerror, error.filename] if has_number else [first_line(error)]  # type: ignore[attr-defined]
    return json.dumps({"kind": error_name, "arguments": arguments, "note": note}, default=str)


def _read_error(text: str) -> Exception:
    fields = json.loads(text)
    if known := ERRORS.get(fields["kind"]):
        error = known(*fields["arguments"])
    else:
        error = RuntimeError(f"{fields['kind']}: {fields['arguments'][0]}")
    error.add_note(fields["note"])
    return error


def _end_with_leader() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def _await_ready(others: list[subprocess.Popen[bytes]], store: Store, kills: int) -> None:
    keys = [READY.format(number) for number in range(1, len(others) + 1)]
    while not store.check(keys):
        if any(other.poll() is not None for other in others):
            raise _find_reason(others, store, kills, RuntimeError("it ended before the training began"))
        time.sleep(0.02)


def _abort_without(other: subprocess.Popen[bytes]) -> None:
    """Abort when another rank dies. NCCL would keep waiting for it; gloo notices by itself."""
    from torch import distributed

    if other.wait() and distributed.is_initialized() and distributed.get_backend() == "nccl":
        distributed.group.WORLD.abort()  # type: ignore[union-attr]


def _find_reason(others: list[subprocess.Popen[bytes]], store: Store, kills: int, error: RuntimeError) -> BaseException:
    """Return what ended the training: the error or the death of another rank, else `error`.

    `kills` is the number of processes that the system had killed for memory before the training.
    """
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
    return LostDevice(f"{field}: the process of one device {how}.")


def _kill(other: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(other.pid, signal.SIGKILL)


def _end(other: subprocess.Popen[bytes]) -> None:
    _kill(other)
    other.wait()
    assert other.stdin is not None
    with suppress(BrokenPipeError):
        other.stdin.close()
