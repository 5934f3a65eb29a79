"""Wait in a test for what another thread or process does."""

import time


def wait_until(holds, seconds=60):
    """Wait until `holds` returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found
