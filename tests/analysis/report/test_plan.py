"""The report holds the plan against what happened."""

import math

from analysis.report.sentences import compare_with_plan

FIGURES = {
    "planned_seconds": 3600.0,
    "planned_seconds_low": 3000.0,
    "planned_seconds_high": 4200.0,
    "planned_seconds_full": 9000.0,
    "planned_trials": 16.0,
    "planned_memory_mb": 2048.0,
    "elapsed_seconds": 3300.0,
    "trials_completed": 6.0,
    "trials_stopped": 10.0,
}


def test_time_and_memory_stand_beside_the_plan():
    (sentence,) = compare_with_plan(FIGURES, 1536.0)
    assert sentence == (
        "The plan was about 1 h (50 min to 1 h 10 min); the sweep took 55 min. The plan was 2.00 GB of "
        "memory for the largest trial; it was 1.50 GB."
    )


def test_a_sweep_with_another_number_of_trials_says_so():
    (sentence,) = compare_with_plan(FIGURES | {"trials_stopped": 4.0}, math.nan)
    assert "55 min, for 10 trials instead of 16" in sentence
    assert "GB" not in sentence


def test_a_sweep_without_a_plan_has_no_such_sentence():
    assert not list(compare_with_plan({"elapsed_seconds": 3.0}, 100.0))
