"""The simulated sweep is driven by the real controller."""

import pytest

from search.planning.simulation import simulate, without_stopping
from spaces.load import load_space
from tests.search.planning.made_up import resolve

SPACE = load_space("quick", ["search.trials=12"])


def run(space=SPACE, slots=1, start=0.0, seed=0, epoch=2.0, setup=1.0):
    return simulate(space, resolve, lambda recipe: (setup, [epoch] * recipe.epochs), slots, start, seed)


def test_without_stopping_the_time_is_that_of_all_epochs():
    course = run(without_stopping(SPACE), start=5.0)
    assert course.epochs == 12 * 9
    assert course.seconds == pytest.approx(5 + 12 * (1 + 9 * 2))


def test_asha_gives_epochs_away_and_the_baselines_run_to_their_end():
    course = run()
    assert 3 * 9 + 9 <= course.epochs < 12 * 9
    assert course.seconds == pytest.approx(12 * 1 + 2 * course.epochs)


def test_trials_at_the_same_time_share_the_work():
    course = run(without_stopping(SPACE), slots=4)
    assert course.seconds == pytest.approx(12 / 4 * 19)


def test_rungs_in_epochs_come_to_an_end():
    space = load_space("quick", ["search.trials=12", "search.scheduler={name: asha, rungs: epochs}"])
    course = run(space, slots=3)
    assert course.epochs < 12 * 9


def test_the_same_seed_gives_the_same_course_and_another_one_another():
    assert run(seed=1, slots=2) == run(seed=1, slots=2)
    assert len({run(seed=seed, slots=2).epochs for seed in range(6)}) > 1


def test_a_metric_that_is_minimised_stops_trials_too():
    space = load_space("quick", ["search.trials=12", "search.metric=val_loss"])
    assert run(space).epochs == run().epochs
