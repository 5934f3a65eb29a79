"""How many validation images a difference between two recipes needs to be seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.tables import Sweep

DIFFERENCE = 0.03  # a gain that most users would want to see
ERRORS = 1.96  # standard errors of a difference, for 95 %


def describe_images(sweep: Sweep) -> str | None:
    """Say how many validation images a difference of 3 points needs; None if there are enough, or it is not known.

    The number of images follows from the best score and its standard error, which is that of a share.
    """
    best = sweep.completed.iloc[0]
    spread = best.score * (1 - best.score)
    if sweep.metric != "val_accuracy" or not spread > 0 or not best.standard_error > 0:
        return None
    images = spread / best.standard_error**2
    needed = 2 * spread * (ERRORS / DIFFERENCE) ** 2
    if images >= needed:
        return None
    return (
        f"Validation has about {_round(images):,} images. To see a difference of {100 * DIFFERENCE:.0f} points between "
        f"two recipes that are trained once, you need about {_round(needed):,}."
    )


def _round(count: float) -> int:
    """The count with two digits."""
    return int(round(count, 1 - math.floor(math.log10(count)))) if count >= 1 else 1
