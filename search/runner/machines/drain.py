"""Leave a node that will go away: at the end of the epoch if there is time for it, else at once.

The checkpoint is that of the last epoch. A worker leaves by SIGTERM to itself: Ray then starts no other trial in this
process, and the driver counts a preemption and starts the trial again on another node.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LOOK_SECONDS = 2.0
NO_DEADLINE = 0


def list_draining() -> dict[str, int]:
    """Return the time at which each node that Ray drains goes away, in ms since 1970, by id; 0 if it is not known."""
    from ray._private.state import state  # there is no public function; Ray's own trainer uses this one

    return dict(state.get_draining_nodes())


def is_on_draining(actor: str | None) -> bool:
    """Return whether an actor of Ray, by its id, is or was on a draining node; without an id, whether any node drains."""
    from ray._private.state import state

    draining = list_draining()
    if not draining or actor is None:
        return bool(draining)
    return state.actor_table(actor).get("Address", {}).get("NodeID") in draining


def leave_node() -> None:
    """End this worker as an eviction would."""
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()  # Ray ends the process


@dataclass
class DrainWatch:
    """Watches for the notice that this worker's node will go away, and leaves it."""

    node: str
    look: Callable[[], dict[str, int]] = list_draining
    leave: Callable[[], None] = leave_node
    now: Callable[[], float] = time.time
    epoch_began: float = 0.0
    epoch_seconds: float | None = None  # duration of the last epoch
    is_draining: bool = False
    is_over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> DrainWatch:
        self.epoch_began = self.now()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.is_over.set()

    def end_epoch(self) -> None:
        """Leave a draining node after an epoch, whose report the driver has received."""
        now = self.now()
        self.epoch_began, self.epoch_seconds = now, now - self.epoch_began
        if self.is_draining:
            self.leave()

    def has_time(self, deadline_ms: int) -> bool:
        """Return whether this epoch can end before the node goes away; a first epoch has no known duration."""
        if deadline_ms == NO_DEADLINE:
            return True
        return self.epoch_seconds is not None and self.epoch_began + self.epoch_seconds < deadline_ms / 1000

    def _watch(self) -> None:
        while not self.is_over.wait(LOOK_SECONDS):
            deadline = self.look().get(self.node)
            self.is_draining = deadline is not None
            if deadline is not None and not self.has_time(deadline):
                self.leave()
