"""The seconds that each activity of a training takes."""

from __future__ import annotations

import time
from typing import Literal, get_args

Activity = Literal["train", "evaluation", "checkpoint", "finder"]


class Stopwatch:
    """Sums the seconds of each activity; at most one runs at a time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(get_args(Activity), 0.0)
        self.running: Activity | None = None

    def start(self, activity: Activity) -> None:
        """End the activity that runs, and start another one."""
        self.stop()
        self.running, self.began = activity, time.perf_counter()

    def stop(self) -> None:
        """End the activity that runs, if any."""
        if self.running:
            self.seconds[self.running] += time.perf_counter() - self.began
        self.running = None
