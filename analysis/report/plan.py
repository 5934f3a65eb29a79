"""A sentence that holds the plan of a sweep against what happened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from analysis.formatting import format_seconds

GB = 1024  # megabytes


def compare_with_plan(figures: Mapping[str, float], memory_mb: float) -> Iterator[str]:
    """Compare time and memory with the plan; nothing if the sweep had none, or while none of its trials has reported.

    Args:
        figures: The sweep's own metrics in MLflow, by name.
        memory_mb: The largest memory of a trial in 2**20 bytes; NaN if it was not measured.
    """
    planned, real = figures.get("planned_seconds"), figures.get("elapsed_seconds")
    if planned is None or not real:
        return
    done = sum(value for name, value in figures.items() if name.startswith("trials_"))
    whole = figures["planned_trials"]
    progress = "" if done == whole else f", for {done:.0f} trials instead of {whole:.0f}"
    span = f"{format_seconds(figures['planned_seconds_low'])} to {format_seconds(figures['planned_seconds_high'])}"
    memory = ""
    if not math.isnan(memory_mb):
        memory = (
            f" The plan was {figures['planned_memory_mb'] / GB:.2f} GB of memory for the largest trial; it was "
            f"{memory_mb / GB:.2f} GB."
        )
    yield (
        f"The plan was about {format_seconds(planned)} ({span}); the sweep took {format_seconds(real)}{progress}.{memory}"
    )
