"""The time of a recipe follows from the trials that have reported, by what they train and by their pixels."""

import math
from itertools import count
from types import SimpleNamespace

import pytest

from search.core.pace import LastPlan, Pace, keep_for_end, plan_last, usual_seconds
from training.recipe import read_recipe


def make_recipe(level, side=64, epochs=10, **more):
    values = {"data": {"name": "digits"}, "unfreeze": {"level": level}, "preprocessing": {"image_size": side}, **more}
    return read_recipe(values | {"epochs": epochs})


def make_trial(recipe, *seconds, beside=60.0, resumes=0):
    """Return a trial with the seconds of its reports; `beside` are those that it took outside of its training."""
    reports = [SimpleNamespace(worker_seconds=each) for each in seconds]
    ended = 7.0 + beside + ((seconds or [None])[-1] or 1.0)
    times = {"started": 7.0, "ended": ended, "resumes": resumes}
    return SimpleNamespace(number=next(NUMBERS), recipe=recipe, reports=reports, state="completed", **times)


class Ranked(list):
    def ranked(self):
        return self


def predict_seconds(recipe, trials):
    return Pace(trials).predict(recipe)


FULL = make_recipe("full")
NUMBERS = count()


@pytest.mark.parametrize(
    ("recipe", "seconds"),
    [
        (FULL, 5 + 10 * 20),
        (make_recipe("full", epochs=2), 5 + 2 * 20),
        (make_recipe("full", side=32), 5 + 10 * 5),
        (make_recipe("most"), 5 + 10 * 11),
        (make_recipe("last"), 5 + 10 * 1),  # from stored features
        (make_recipe("last", flip={"probability": 0.5}), 5 + 10 * 5),
    ],
)
def test_a_recipe_takes_in_proportion_to_what_was_seen(recipe, seconds):
    assert predict_seconds(recipe, [make_trial(FULL, 25, 45, 65)]) == pytest.approx(seconds)


def test_the_time_of_a_trial_is_that_of_all_its_workers():
    assert usual_seconds(make_trial(FULL, 10, 20, 30, 8, 16)) == 46
    assert usual_seconds(make_trial(FULL, None)) == usual_seconds(None) == 1


def test_trials_of_the_same_cost_count_alone_and_the_shortest_start():
    trials = [make_trial(FULL, 25, 45, 65), make_trial(make_recipe("last"), 9, 11), make_trial(FULL, 30)]
    assert predict_seconds(make_recipe("last"), trials) == pytest.approx(5 + 10 * 2)


def test_stored_features_do_not_predict_images_where_images_do():
    trials = [make_trial(FULL, 25, 45, 65), make_trial(make_recipe("last"), 1, 1.1)]
    assert predict_seconds(make_recipe("most"), trials) == pytest.approx(0.9 + 10 * 11)
    assert predict_seconds(make_recipe("most"), trials[1:]) == pytest.approx(0.9 + 10 * 0.1 * 11)


def test_a_worker_that_began_again_has_no_step_between():
    assert predict_seconds(FULL, [make_trial(FULL, 25, 45, 30, 50)]) == pytest.approx(5 + 10 * 20)


def test_a_trial_is_measured_anew_after_its_next_report():
    trials = [make_trial(FULL, 25, 45)]
    pace = Pace(trials)
    assert pace.predict(FULL) == pytest.approx(5 + 10 * 20)
    trials[0].reports += make_trial(FULL, 75, 105).reports
    assert pace.predict(FULL) == pytest.approx(0 + 10 * 30)


def test_a_training_of_one_epoch_tells_of_others_when_it_has_ended_and_a_probe_does_not():
    short, probe = (
        make_recipe("most", epochs=1),
        make_recipe("last", epochs=1, linear_probe={"c": 1.0, "trains": False}),
    )
    assert predict_seconds(short, [make_trial(probe, 9)]) is None
    assert predict_seconds(short, [make_trial(probe, 9), make_trial(short, 60)]) == pytest.approx(60)


def test_without_two_reports_nothing_is_known():
    assert predict_seconds(FULL, [make_trial(FULL, 25), make_trial(FULL)]) is None


PROBE = make_recipe("last", linear_probe={"c": 0.1, "trains": False})


@pytest.mark.parametrize(
    ("ranked", "budget", "slots", "kept"),
    [
        ([], 600, 1, 6 + 3 * 13.3),
        ([make_trial(FULL, 20, 40, 50)], 600, 1, 6 + 3 * (12 + 65)),
        ([make_trial(FULL, 20, 40, 50)], 600, 2, 6 + 2 * (12 + 65)),  # two at a time, then one
        ([make_trial(FULL, 20, 40, 50)], 190, 2, 6 + 12 + 65),  # two at a time; a third would not end in the time
        ([make_trial(FULL, 20, 40, 50)], 160, 2, 6 + 12 + 65 * 2**-0.5),  # one, which has all CPUs
        (
            [make_trial(FULL, 20, 40, 50)],
            600,
            16,
            6 + 12 + 65 * (3 / 16) ** 0.5,
        ),  # three, with a third of the CPUs each
        ([make_trial(FULL, 200, 500)], 600, 1, 270),  # then fewer train, and the first is given up if it takes longer
        (
            [make_trial(PROBE, 5), make_trial(FULL, 20, 40, 50)],
            600,
            1,
            6 + 3 * (12 + 65),
        ),  # the probe may have been lucky
        ([make_trial(FULL, None)], 600, 1, 6 + 3 * 13.3),  # a ledger that was repaired
    ],
)
def test_time_is_kept_for_as_many_last_trainings_as_end_in_it_at_most_three(ranked, budget, slots, kept):
    assert keep(ranked, budget, math.inf, slots) == pytest.approx(kept)


def keep(ranked, budget, left, slots=1):
    return keep_for_end(Ranked(ranked), budget, left, slots, shares_cpus=True)


def test_where_not_even_one_last_training_would_end_trials_get_the_time():
    leader = [make_trial(FULL, 20, 40, 50)]
    needed = 6 + 12 + 65
    assert keep(leader, 180, needed - 9) == pytest.approx(0.45 * 180)  # it may take a twentieth of the budget more
    assert keep(leader, 180, needed - 9.1) == 6
    assert keep(leader, 600, needed) == pytest.approx(6 + 3 * (12 + 65))


def test_on_a_cluster_fewer_trainings_at_a_time_have_no_more_cpus_each():
    plan = plan_last(Ranked(), 50, 600, most=4, slots=2, shares_cpus=False)
    assert plan == LastPlan(lanes=2, members=4, each=77, seconds=154)


@pytest.mark.parametrize(
    ("beside", "resumes", "start"),
    [
        ([3.0, 1.0], [0, 0], 3.0),
        ([3.0, 90.0], [0, 0], 12.0),  # one that waited
        ([3.0, 5.0], [0, 1], 3.0),  # its last report says how long it trained since it began again
        ([90.0], [1], 12.0),
    ],
)
def test_a_last_training_starts_in_the_time_of_the_slowest_trial(beside, resumes, start):
    trials = [make_trial(FULL, 20, 50, beside=own, resumes=more) for own, more in zip(beside, resumes, strict=True)]
    assert plan_last(Ranked(trials), 50, 600, most=1, slots=1, shares_cpus=True).each == pytest.approx(start + 65)
