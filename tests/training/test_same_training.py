"""Recipes that differ and train the same: they give the same weights, and count as one in a sweep."""

import pytest
import torch

from ledger.events import SweepStarted, TrialStarted
from ledger.file import Ledger
from ledger.settings import Settings
from ledger.trials import Trials
from search.core.controller import Controller
from spaces.load import load_space
from training.loop.checkpoint import read_checkpoint
from training.recipe import read_recipe
from training.train import train

TINY = {
    "data": {"name": "digits", "train_size": 70},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "epochs": 3,
    "batch_size": 32,  # three batches in an epoch
}
SAME = [  # powers of two, with which no product is rounded
    ({"batches": 4}, {"batches": 8}),
    ({"schedule": [[1, 4]]}, {"schedule": [[1, 64]]}),
    ({"batches": 4, "rule": "linear"}, {"batches": 16, "rule": "linear"}),
]
HEADER = SweepStarted(id="1", settings=Settings(), dataset={"train_images": 70})


def make(rule="none", **accumulation):
    return read_recipe({**TINY, "accumulation": accumulation, "lr_scaling": {"rule": rule}})


@pytest.mark.parametrize(("one", "other"), SAME)
def test_a_step_of_more_batches_than_an_epoch_has_is_one_of_the_whole_epoch(tmp_path, one, other):
    weights = []
    for number, fields in enumerate((one, other)):
        (tmp_path / str(number)).mkdir()
        train(make(**fields), tmp_path / str(number))
        weights.append(read_checkpoint(tmp_path / str(number) / "best.ckpt")["state_dict"])
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert make(**one).as_trained(70) == make(**other).as_trained(70)
    assert make(**one).as_trained(None) != make(**other).as_trained(None)
    assert make(**one).as_trained(600) != make(**other).as_trained(600)


def test_such_trials_are_copies_and_a_smaller_epoch_counts(tmp_path):
    recipes = [make(batches=batches) for batches in (2, 3, 4)]
    trials = Trials("val_accuracy", [HEADER])
    for number, recipe in enumerate(recipes):
        trials.fold(TrialStarted(trial=number, recipe=recipe, params={}, origin="sampler"))
    assert trials.find(make(batches=9)).number == 1
    assert trials.copies() == {2}
    small = [read_recipe({**recipe.model_dump(), "data": {**TINY["data"], "epoch_size": 33}}) for recipe in recipes]
    assert len({recipe.as_trained(70).model_dump_json() for recipe in small}) == 1


def test_a_search_trains_one_of_them(tmp_path):
    (tmp_path / "space.yaml").write_text(
        "format: 1\n"
        "recipe: {epochs: 1, batch_size: 32, accumulation: {batches: {choice: [1, 2, 3, 4, 5, 6]}}}\n"
        "search: {trials: 20}\n"
    )
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(HEADER)
    controller = Controller(load_space(tmp_path / "space.yaml"), ledger)
    started = []
    while (trial := controller.next_trial()) is not None:
        started.append(trial.recipe.accumulation.batches)
    assert sorted(batches for batches in set(started) if batches < 3) == [1, 2]
    assert sum(batches >= 3 for batches in started) == 1
