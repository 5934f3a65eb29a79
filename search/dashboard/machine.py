"""How busy this machine is: its CPUs, memory and GPUs."""

from __future__ import annotations

import shutil
import subprocess
import time

import psutil

LOOK_SECONDS = 4.0
QUERY = ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


class Machine:
    """Measures at most once in some seconds; between two looks it returns the last texts."""

    def __init__(self) -> None:
        self.next_look = time.monotonic() + LOOK_SECONDS / 4  # a shorter time says nothing about the CPUs
        self.texts: list[str] = []
        psutil.cpu_percent()  # the next call measures from here

    def describe(self) -> list[str]:
        """Return texts such as `CPUs 87 % busy`."""
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_SECONDS
            memory = psutil.virtual_memory()
            self.texts = [
                f"CPUs {psutil.cpu_percent():.0f} % busy",
                f"memory {memory.percent:.0f} % used",
                *_describe_gpus(),
            ]
        return self.texts


def _describe_gpus() -> list[str]:
    if (tool := shutil.which("nvidia-smi")) is None:
        return []
    try:
        done = subprocess.run([tool, *QUERY], capture_output=True, text=True, timeout=2, check=True)
        rows = [[float(cell) for cell in line.split(",")] for line in done.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError):  # the tool is there, but its driver is not
        return []
    return [
        f"GPU {n}: {busy:.0f} % busy, {used / total:.0%} of its memory" for n, (busy, used, total) in enumerate(rows)
    ]
