"""Intervals hold as often as they say, also for whichever recipe came out best."""

import numpy as np
import pytest

from analysis.intervals import mean_interval, paired_interval, rank_ranges, score_interval, share_interval


def test_the_interval_of_the_best_of_many_holds_where_a_plain_one_fails():
    rng = np.random.default_rng(0)
    held = {"plain": 0, "joint": 0}
    for _ in range(400):
        scores = rng.normal(0.9, 0.02, (10, 5))  # ten equal recipes on five seeds: the best is only lucky
        best = scores[scores.mean(axis=1).argmax()]
        held["plain"] += mean_interval(best).low <= 0.9 <= mean_interval(best).high
        joint = mean_interval(best, comparisons=10)
        held["joint"] += joint.low <= 0.9 <= joint.high
    assert held["joint"] >= 0.93 * 400
    assert held["plain"] < 0.9 * 400


def test_pairing_by_seed_finds_what_the_seeds_hide():
    seeds = np.array([0.80, 0.85, 0.90, 0.95])
    gap = np.array([0.010, 0.012, 0.009, 0.011])
    assert paired_interval(seeds + gap, seeds).low > 0
    assert mean_interval(seeds + gap).low < mean_interval(seeds).high


def test_ranks_are_a_range_where_recipes_cannot_be_told_apart():
    rng = np.random.default_rng(1)
    close = rng.normal(0.9, 0.01, 5)
    scores = {"a": close, "b": close + rng.normal(0, 0.01, 5), "c": close - 0.3 + rng.normal(0, 0.001, 5)}
    assert rank_ranges(scores, sign=1) == {"a": (1, 2), "b": (1, 2), "c": (3, 3)}
    assert rank_ranges(scores, sign=-1)["c"] == (1, 1)


def test_a_perfect_share_still_has_an_interval():
    found = share_interval(50, 50)
    assert found.mean == 1
    assert found.low == pytest.approx(0.929, abs=0.001)  # as statsmodels' proportion_confint(50, 50, method="wilson")


def test_an_interval_of_a_score_stays_within_what_it_can_be():
    assert score_interval("val_accuracy", [0.96, 0.99]).high == 1
    assert score_interval("val_loss", [0.1, 1.9]).low == 0
    assert score_interval("val_loss", [0.1, 1.9]).high == mean_interval([0.1, 1.9]).high > 1
