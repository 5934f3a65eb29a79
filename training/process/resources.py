"""The CPUs and GPUs that a training may use."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from training.errors import UserError


@dataclass(frozen=True)
class Resources:
    """The CPUs and GPUs of one training."""

    threads: int = 1  # CPUs for computation
    workers: int = 0  # loader processes, which use further CPUs
    device: Literal["cpu", "cuda"] = "cpu"
    gpus: int = 1  # ignored if the device is a CPU
    gpu_share: float = 1.0  # part of each GPU's memory that this training may fill

    def divide(self, devices: int) -> Resources:
        """Return what the process of each of several devices may use.

        Raises:
            UserError: there are fewer GPUs, or without GPUs fewer CPUs, than devices.
        """
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
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_cpus(cpus: float, in_memory: bool) -> tuple[int, int]:
    """Return the numbers of torch threads and loader workers, which together use all CPUs of a trial and no more."""
    whole = max(1, int(cpus))
    if in_memory or whole < 2:
        return whole, 0
    workers = whole // 2
    return whole - workers, workers


def find_device() -> Literal["cpu", "cuda"]:
    """Return `cuda` if torch can use a GPU here, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
