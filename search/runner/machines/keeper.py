"""The process that keeps a Ray up between sweeps, and the commands' part of starting and ending it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from filelock import Timeout

from search.runner.machines.cluster import start_ray
from search.runner.machines.forking.start import start_fork_server
from search.runner.machines.warm import (
    Surroundings,
    Warm,
    find_warm,
    is_held,
    keeper_lock,
    remove_state,
    state_folder,
    use_lock,
    write_state,
)
from training.errors import UserError

_AUTHENTICATION = "RAY_AUTH_MODE"  # Ray sets it when it starts with a token; without it a driver is refused at first
_LOOK_SECONDS = 2.0
_START_SECONDS = 120.0
_END_SECONDS = 30.0


def bring_up(minutes: float) -> str:
    """Start a Ray that stays up, and return a sentence about it.

    Raises:
        UserError: one is up already, the cache cannot be written, or Ray did not start.
    """
    try:
        state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        is_up = is_held(keeper_lock())
    except OSError as error:
        raise UserError(
            f"{state_folder()}: it cannot be written ({error.strerror}). Set XDG_CACHE_HOME to a folder that can."
        ) from None
    if is_up:
        warm = find_warm()
        difference = Surroundings.here().name_difference(warm.surroundings) if warm else "it is starting"
        if difference:
            raise UserError(f"A Ray is up already, and {difference}. End it first: sweep down.")
        return "Ray is up already, for sweeps in this folder."
    remove_state()  # of a keeper that was killed
    log = state_folder() / "keeper.log"
    with log.open("w") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(minutes)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # it outlives the terminal
        )
    end = time.monotonic() + _START_SECONDS
    while (warm := find_warm()) is None:
        if keeper.poll() is not None or time.monotonic() > end:
            keeper.terminate()
            last = (log.read_text().strip().splitlines() or ["no reason is known"])[-1]
            raise UserError(f"Ray did not start: {last} ({log} has more).")
        time.sleep(0.1)
    return f"Ray is up: sweeps that start in {warm.surroundings.folder} use it. {_describe_end(minutes)}"


def _describe_end(minutes: float) -> str:
    return f"It ends with sweep down, or {minutes:g} minutes after the last sweep."


def take_down() -> str:
    """End the Ray that is up, and return a sentence about it.

    Raises:
        UserError: a sweep uses it, or it does not end.
    """
    warm = find_warm()
    if warm is None:
        return "No Ray is up."
    lock = use_lock()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError("A sweep uses the Ray that is up. Stop it first: sweep stop NAME.") from None
    try:
        os.kill(warm.pid, signal.SIGTERM)
        keeper_lock().acquire(timeout=_END_SECONDS)
    except ProcessLookupError:
        pass
    except Timeout:
        raise UserError(
            f"The process {warm.pid} keeps Ray up and has not ended in {_END_SECONDS:.0f} seconds."
        ) from None
    finally:
        lock.release()
    return "Ray has ended."


def keep(minutes: float) -> None:
    """Keep a Ray up until SIGTERM, or until no sweep has used it for so long."""
    ended = threading.Event()
    with keeper_lock().acquire(timeout=0):
        surroundings = Surroundings.here()
        start_ray(None)
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        import ray

        address = ray.get_runtime_context().gcs_address
        settings = {_AUTHENTICATION: os.environ[_AUTHENTICATION]} if _AUTHENTICATION in os.environ else {}
        write_state(
            Warm(
                pid=os.getpid(),
                address=address,
                python=start_fork_server(),
                settings=settings,
                surroundings=surroundings,
            )
        )
        used = time.monotonic()
        lock = use_lock()
        while not ended.wait(_LOOK_SECONDS):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                used = time.monotonic()
                continue
            if time.monotonic() - used > 60 * minutes:
                break  # with the lock, so no sweep begins to use it
            lock.release()
        remove_state()
        ray.shutdown()


if __name__ == "__main__":
    try:
        keep(float(sys.argv[1]))
    except Timeout:
        sys.exit("another sweep up is starting one")
