"""Peak memory, of the GPU's allocator or of the process on Linux, and the number of processes killed for memory."""

from __future__ import annotations

from pathlib import Path

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
        try:
            Path("/proc/self/clear_refs").write_text("5")  # this resets VmHWM, see proc(5)
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
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def read_gpu_mb() -> float:
    """Return the memory of the smallest GPU that this process sees, in megabytes (2**20 bytes)."""
    import torch

    return min(
        torch.cuda.get_device_properties(number).total_memory / MB for number in range(torch.cuda.device_count())
    )


def limit_memory(device: str, share: float) -> None:
    """Let this process fill at most a share of its GPU's memory; beyond it, torch reports that memory is exhausted.

    CUDA's own memory belongs to a share too, so torch gets less than the share.
    """
    if device == "cuda":
        import torch

        context_share = 0.0 if share == 1 else CONTEXT_MB / read_gpu_mb()
        torch.cuda.set_per_process_memory_fraction(max(share - context_share, share / 2))


def count_memory_kills() -> int:
    """Return how many processes Linux has killed for memory since boot (proc(5), /proc/vmstat: oom_kill); 0 elsewhere."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
