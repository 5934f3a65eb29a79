"""Recipes that differ and train the same: they give the same weights, and count as one in a sweep."""

import pytest
import torch

from ledger.events import SweepStarted, TrialStarted
from ledger.file import Ledger
from ledger.settings import Settings
from ledger.trials import Trials
from search.core.controller import Controller
from spaces.load import load_space
from training.data.pipelines.loaders import list_batch_sizes
from training.distributed.rank import Rank
from training.loop.checkpoint import read_checkpoint
from training.recipe import read_recipe
from training.train import train

TINY = {
    "data": {"name": "digits", "train_size": 70},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "epochs": 3,
    "batch_size": 32,  # three batches in an epoch
}
APART = {"epochs": 30, "batch_size": 8}
SAME = [  # powers of two, with which no product is rounded
    (4, 8, lambda batches: {"accumulation": {"batches": batches}}),
    (4, 64, lambda batches: {"accumulation": {"schedule": [[1, batches]]}}),
    (4, 16, lambda batches: {"accumulation": {"batches": batches}, "lr_scaling": {"rule": "linear"}}),
    (0.1, 0.2, lambda epochs: {"schedule": {"name": "cosine", "warmup_epochs": epochs}}),
    (0.1, 0.12, lambda share: {"schedule": {"name": "trapezoid", "cooldown_fraction": share}}),
    (0.7, 0.9, lambda start: {"averaging": {"name": "swa", "start": start}}),
    (0.35, 0.4, lambda start: {"averaging": {"name": "swa", "start": start, "lr_factor": 0.5}}),
    (0.7, 0.9, lambda growth: {"progressive_resizing": {"start": 0.5, "growth": growth}}),
    (0.5, 0.55, lambda start: {"progressive_resizing": {"start": start, "growth": 0.5}}),
    (None, 70, lambda size: {"data": {**TINY["data"], "epoch_size": size}}),
]
HEADER = SweepStarted(id="1", settings=Settings(), dataset={"train_images": 70})


def make(fields):
    return read_recipe({**TINY, "preprocessing": {"image_size": 32}, **fields})


@pytest.mark.parametrize(("one", "other", "fields"), SAME)
def test_recipes_that_must_train_alike_do_and_share_a_key(tmp_path, one, other, fields):
    weights = []
    for number, value in enumerate((one, other)):
        (tmp_path / str(number)).mkdir()
        train(make(fields(value)), tmp_path / str(number))
        weights.append(read_checkpoint(tmp_path / str(number) / "best.ckpt")["state_dict"])
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    first, second = make(fields(one)), make(fields(other))
    assert first.training_key(70) == second.training_key(70)
    assert first.training_key(None) != second.training_key(None)
    longer = [make({**fields(value), **APART}).training_key(600) for value in (one, other)]
    assert longer[0] != longer[1]


def test_a_key_counts_the_batches_that_are_trained():
    for images in range(1, 200):
        batches = len(list_batch_sizes(images, 32, Rank()))
        kept = make({"accumulation": {"batches": max(1, batches - 1)}}).training_key(images)
        whole, more = (make({"accumulation": {"batches": n}}).training_key(images) for n in (batches, batches + 1))
        assert whole == more
        assert (kept == whole) == (batches == 1)


def test_cycles_that_do_not_fit_leave_a_ledger_readable():
    fields = {"schedule": {"name": "cosine_restarts", "cycles": 20}, "averaging": {"name": "swa"}}
    assert make(fields).training_key(70) == make(fields).model_dump_json()


def test_such_trials_are_copies_and_a_smaller_epoch_counts(tmp_path):
    recipes = [make({"accumulation": {"batches": batches}}) for batches in (2, 3, 4)]
    trials = Trials("val_accuracy", [HEADER])
    for number, recipe in enumerate(recipes):
        trials.fold(TrialStarted(trial=number, recipe=recipe, params={}, origin="sampler"))
    assert trials.find(make({"accumulation": {"batches": 9}})).number == 1
    assert trials.copies() == {2}
    small = [read_recipe({**recipe.model_dump(), "data": {**TINY["data"], "epoch_size": 33}}) for recipe in recipes]
    assert len({recipe.training_key(70) for recipe in small}) == 1


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
