"""Intervals have the coverage that they claim, also for the recipe that came out best."""

import numpy as np
import pytest
from scipy import stats

from analysis.effects.seed_intervals import (
    Noise,
    mean_interval,
    paired_interval,
    rank_ranges,
    score_interval,
    score_noise,
    share_interval,
)


def test_the_interval_of_the_best_of_many_covers_the_truth_and_a_plain_interval_does_not():
    rng = np.random.default_rng(0)
    held = {"plain": 0, "joint": 0}
    for _ in range(400):
        table = rng.normal(0.9, 0.02, (10, 5))  # ten equal recipes on five seeds: the best is only lucky
        scores = {str(number): row for number, row in enumerate(table)}
        best, noise = table[table.mean(axis=1).argmax()], score_noise(scores)
        for name, comparisons in (("plain", 1), ("joint", 10)):
            interval = mean_interval(best, noise, comparisons)
            held[name] += interval.low <= 0.9 <= interval.high
    assert held["joint"] >= 0.93 * 400
    assert held["plain"] < 0.9 * 400


def test_pairing_by_seed_finds_a_difference_that_the_noise_between_seeds_hides():
    seeds = np.array([0.80, 0.85, 0.90, 0.95])
    gap = np.array([0.010, 0.012, 0.009, 0.011])
    scores = {"with": seeds + gap, "without": seeds}
    assert paired_interval(scores, "with", "without").low > 0
    noise = score_noise(scores)
    assert mean_interval(scores["with"], noise).low < mean_interval(scores["without"], noise).high


def test_two_recipes_are_compared_as_in_the_paired_t_test():
    rng = np.random.default_rng(2)
    scores = {"a": rng.normal(0.5, 0.1, 6), "b": rng.normal(0.6, 0.1, 6)}
    found, known = paired_interval(scores, "a", "b"), stats.ttest_rel(scores["a"], scores["b"]).confidence_interval()
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=0.05)  # equal except for rounding


def test_scores_that_are_equal_because_of_rounding_prove_nothing():
    """Twelve equal recipes on two seeds, scored on 350 images: one of them seldom seems better than the first."""
    same_step = paired_interval({"a": [0.90, 0.92], "b": [0.88, 0.90]}, "a", "b")
    assert not same_step.excludes_zero
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(300):
        table = np.round(rng.normal(0.95, 0.01, (13, 2)) * 350) / 350
        scores = {str(number): row for number, row in enumerate(table)}
        called += any(paired_interval(scores, "0", other, 12).excludes_zero for other in scores if other != "0")
    assert called <= 0.05 * 300 + 2 * (0.05 * 0.95 * 300) ** 0.5


def test_ranks_are_ranges_when_recipes_cannot_be_distinguished():
    rng = np.random.default_rng(1)
    close = rng.normal(0.9, 0.01, 5)
    scores = {"a": close, "b": close + rng.normal(0, 0.01, 5), "c": close - 0.3 + rng.normal(0, 0.001, 5)}
    assert rank_ranges(scores, sign=1) == {"a": (1, 2), "b": (1, 2), "c": (3, 3)}
    assert rank_ranges(scores, sign=-1)["c"] == (1, 1)


def test_a_perfect_share_still_has_an_interval():
    found = share_interval(50, 50)
    assert found.mean == 1
    assert found.low == pytest.approx(
        0.929, abs=0.001
    )  # equals statsmodels' proportion_confint(50, 50, method="wilson")


def test_an_interval_of_a_score_stays_within_the_range_of_the_metric():
    noise = Noise(0.5, 3)
    assert score_interval("val_accuracy", [0.96, 0.99], noise).high == 1
    assert score_interval("val_loss", [0.1, 1.9], noise).low == 0
    assert score_interval("val_loss", [0.1, 1.9], noise).high == mean_interval([0.1, 1.9], noise).high > 1
