"""The epochs at which early stopping compared the trials, as far as the figures draw them."""

from __future__ import annotations

from collections.abc import Mapping

SHARE = 0.03  # An epoch at which fewer trials were stopped is not drawn as a rung.


def choose_rungs(stops: Mapping[int, int], trials: int) -> list[tuple[int, int]]:
    """The epochs at which several trials were stopped, each with the number of them.

    Args:
        stops: The number of trials that were stopped at each epoch.
        trials: The number of all trials.
    """
    fewest = max(2, SHARE * trials)
    return [(int(epoch), int(count)) for epoch, count in sorted(stops.items()) if count >= fewest]
