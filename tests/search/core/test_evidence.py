"""Correlations between rungs: corrected for the selection, and close to the expected one while there are few trials."""

import numpy as np
import pytest

from search.core.early_scores import Evidence


def select(correlation: float, share: float, count: int) -> Evidence:
    """Return the pairs of the best `share` at a rung of `count` trials whose scores have this correlation."""
    rng = np.random.default_rng(0)
    early = rng.normal(size=count)
    late = correlation * early + np.sqrt(1 - correlation**2) * rng.normal(size=count)
    evidence = Evidence()
    for index in np.flatnonzero(early >= np.quantile(early, 1 - share)):
        evidence.add(0, None, early[index], late[index])
    return evidence


@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.5, 0.9])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_the_correlation_of_all_trials_is_found_from_those_that_were_not_stopped(
    correlation: float, share: float
) -> None:
    found = select(correlation, share, 800).correlate(0, None, share, expected=0.5, weight=1)
    assert found == pytest.approx(correlation, abs=0.12)


def test_the_expected_correlation_counts_alone_until_there_are_four_pairs() -> None:
    evidence = Evidence()
    for score in (1.0, 2.0, 3.0):
        evidence.add(0, None, score, -score)
    assert evidence.correlate(0, None, 1.0, expected=0.9, weight=3) == 0.9
    evidence.add(0, None, 4.0, -4.0)
    assert evidence.correlate(0, None, 1.0, expected=0.9, weight=3) < 0.5


def test_the_expected_correlation_counts_less_with_each_pair() -> None:
    found = [select(-0.5, 1.0, count).correlate(0, None, 1.0, expected=0.9, weight=10) for count in (5, 20, 150)]
    assert found == sorted(found, reverse=True)


def test_equal_scores_have_no_correlation() -> None:
    evidence = Evidence()
    for score in range(50):
        evidence.add(0, 1, 0.5, score)
    assert abs(evidence.correlate(0, 1, 0.5, expected=0.0, weight=1)) < 1e-9


def test_ties_are_not_ordered_by_their_trials() -> None:
    evidence = Evidence()
    for number in range(60):
        evidence.add(0, 1, float(number % 2), float(number // 2 % 2))
    assert abs(evidence.correlate(0, 1, 1.0, expected=0.0, weight=1)) < 1e-9
