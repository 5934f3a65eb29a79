"""The simulated sets have the property that their name promises."""

from typing import Any

import numpy as np
import pytest

from benchmarks.simulated_curves import SETS, synthesise


def correlate_with_end(lines: list[dict[str, Any]], share: float) -> float:
    """Return the rank correlation between the best score up to a share of the length and the best of all."""
    whole = [line["scores"] for line in lines[1:] if len(line["scores"]) == line["length"]]
    early = [max(scores[: max(1, round(share * len(scores)))]) for scores in whole]
    ranks = np.argsort(np.argsort([early, [max(scores) for scores in whole]], axis=1), axis=1)
    return float(np.corrcoef(ranks)[0, 1])


@pytest.mark.parametrize(("name", "low", "high"), [("early", 0.95, 1.0), ("delayed", -1.0, -0.2), ("flat", 0.1, 0.5)])
def test_early_scores_tell_as_much_as_the_set_promises(name: str, low: float, high: float) -> None:
    assert low <= correlate_with_end(synthesise(name), 1 / 8) <= high


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_the_same_each_time_and_another_one_with_another_seed(name: str) -> None:
    assert synthesise(name, count=5) == synthesise(name, count=5)
    assert synthesise(name, count=5) != synthesise(name, seed=1, count=5)
