"""The CPUs and GPUs that a training may use, and the memory that it uses."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from training.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Resources:
    """The CPUs and GPUs of one training."""

    threads: int = 1  # CPUs for computation
    workers: int = 0  # loader processes, which use further CPUs
    device: Literal["cpu", "cuda"] = "cpu"
    gpus: int = 1  # ignored if the device is a CPU
    gpu_share: float = 1.0  # part of each GPU's memory that this training may fill

    def divide(self, devices: int) -> Resources:
        """Return what the process of each of several devices may use."""
        cpus = self.threads + self.workers
        if devices > (self.gpus if self.device == "cuda" else cpus):
            has, option = (f"{self.gpus} GPU", "gpus") if self.device == "cuda" else (f"{cpus} CPU", "cpus")
            raise UserError(
                f"data_parallel.devices={devices}, but this training has {has}: give it more, in a sweep by "
                f"--{option}-per-trial={devices}, or take fewer devices."
            )
        return replace(self, threads=max(1, self.threads // devices), workers=self.workers // devices)


ONE_CPU = Resources()


def count_cpus() -> int:
    """Return the number of CPUs that this process may use, also by the quota of a container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(count, *_list_quotas())))


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the result for each item, in their order, computed in a thread for each CPU."""
    with ThreadPoolExecutor(count_cpus()) as pool:
        return list(pool.map(function, items))


def _list_quotas(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[float]:
    """Return the CPUs that the control groups of this process allow (cgroups(7)); infinity is always among them."""
    quotas = [math.inf]
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return quotas
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        is_second = not controllers
        if not is_second and "cpu" not in controllers.split(","):
            continue
        top = root if is_second else root / "cpu"
        # A container often sees its own group as the root. The groups above limit this one too.
        for group in {top, *(top / part for part in (Path(path.strip("/")), *Path(path.strip("/")).parents))}:
            names = ("cpu.max",) if is_second else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            with suppress(OSError, ValueError, ZeroDivisionError):  # no file, or no limit: `max`
                allowed, period = map(int, " ".join((group / name).read_text() for name in names).split())
                quotas += [allowed / period] if allowed > 0 else []  # -1: no limit
    return quotas


def split_cpus(cpus: float, in_memory: bool, on_gpu: bool = False) -> tuple[int, int]:
    """Return the numbers of torch threads and loader workers, which together use all CPUs of a trial and no more.

    On a CPU an image is computed for longer than it is decoded: three epochs on 400 photographs of 32 pixels take 36 s with
    one thread and one worker, and 25 s with two threads.
    """
    whole = max(1, int(cpus))
    workers = 0 if in_memory else whole // (2 if on_gpu else 4)
    return whole - workers, workers


def find_device() -> Literal["cpu", "cuda"]:
    """Return `cuda` if torch can use a GPU here, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


MB = 2**20
CONTEXT_MB = 600.0  # CUDA needs about this for each process, besides what torch allocates


class PeakMemory:
    """The peak since this object was created."""

    def __init__(self, device: str) -> None:
        self.device = device
        if device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
            return
        from training.process.isolation import give_memory_back

        give_memory_back()
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # this resets VmHWM, see proc(5)
            self.readable = True
        except OSError:
            self.readable = False

    def read_mb(self) -> float | None:
        """Return the peak in megabytes (2**20 bytes), or None where the system does not report it."""
        if self.device == "cuda":
            import torch

            return torch.cuda.max_memory_allocated() / MB
        if not self.readable:
            return None
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def has_bfloat16(device: str) -> bool:
    """Return whether the GPU in use, or this CPU, has bfloat16 arithmetic; where it is emulated, float32 is quicker."""
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    has = torch.cpu.get_capabilities() if torch.backends.mkldnn.is_available() else {}
    return any(has[name] for name in has if name.endswith("bf16"))


def read_gpu_mb() -> float:
    """Return the memory of the smallest GPU that this process sees, in megabytes (2**20 bytes)."""
    import torch

    return min(torch.cuda.get_device_properties(gpu).total_memory / MB for gpu in range(torch.cuda.device_count()))


def limit_memory(device: str, share: float) -> None:
    """Let this process fill at most a share of its GPU's memory; beyond it, torch reports that memory is exhausted.

    CUDA's own memory belongs to a share too, so torch gets less than the share.
    """
    if device == "cuda":
        import torch

        context_share = 0.0 if share == 1 else CONTEXT_MB / read_gpu_mb()
        torch.cuda.set_per_process_memory_fraction(max(share - context_share, share / 2))


def read_gpu_limit() -> float:
    """Return the bytes that torch may allocate on the GPU in use."""
    import torch

    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return float(torch.cuda.get_per_process_memory_fraction() * total)


def count_memory_kills() -> int:
    """Return how many processes Linux has killed for memory since boot (proc(5), /proc/vmstat: oom_kill); 0 elsewhere."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
