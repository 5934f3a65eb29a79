"""`sweep confirm` and `sweep ablate` say what they will train, and choose as many seeds as fit into a time."""

from types import SimpleNamespace

import pytest

import search
from search.evaluation.replications import replication
from search.evaluation.replications.replication import choose_seeds
from tests.search.core.test_pace import FULL, make_trial
from training.errors import UserError

RECIPES = [FULL, FULL.model_copy(update={"seed": 1})]


TRIALS = [make_trial(FULL, 20, 40, 60)]


def choose(seeds, seconds, slots=2, trials=TRIALS):
    said = []
    source = SimpleNamespace(name="good-1", trials=trials, driver=SimpleNamespace(slots=slots))
    return choose_seeds(source, RECIPES, seeds, seconds, said.append), " ".join(said)


def test_the_trainings_and_their_time_are_said_before_they_start():
    # A training takes 200 seconds, and two run at a time.
    assert choose(5, None) == (5, "2 recipes on 5 fresh seeds: 10 trainings, about 16 min 40 s.")
    assert choose(5, None, slots=1)[1].endswith("about 33 min 20 s.")
    assert choose(5, None, trials=()) == (5, "2 recipes on 5 fresh seeds: 10 trainings.")


def test_as_many_seeds_as_fit_into_the_time_are_trained():
    assert choose(5, 700)[0] == 3
    assert choose(5, 7000)[0] == 5
    with pytest.raises(UserError, match="2 recipes on 2 seeds, the fewest, take about 6 min 40 s. Give more time"):
        choose(5, 300)
    with pytest.raises(UserError, match="no trial of good-1 says how long one takes. Give --seeds instead"):
        choose(5, 300, trials=())


def test_a_confirmation_that_exists_takes_no_time_and_one_without_a_recipe_is_refused(
    home, without_ray, without_store, monkeypatch
):
    sweep = search.open("tiny")
    with pytest.raises(UserError, match="--time-budget=soon: this is not a time"):
        sweep.confirm(time_budget="soon")
    with monkeypatch.context() as patched:
        patched.setattr(replication, "_open_replication", lambda *_: sweep.record)
        with pytest.raises(UserError, match="--time-budget: tiny exists already"):
            sweep.confirm(time_budget="30m")
    best = sweep.record.trials.ranked()[0]
    for trial in sweep.record.trials:
        trial.recipe = best.recipe
    with pytest.raises(UserError, match="tiny: no recipe but the baseline has completed"):
        sweep.confirm()
