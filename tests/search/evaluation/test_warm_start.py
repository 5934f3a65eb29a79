"""Which recipes of earlier sweeps a new one begins with."""

import os
import shutil

import pytest

from ledger.events import WarmStart
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.core.controller import Controller
from search.request import read_request
from search.runner.sweep import create_folder, make_header
from search.sweep_options import SweepOptions
from spaces.load import load_space
from training.errors import UserError
from training.loop.epoch_report import Report


def with_backend(recipe, backend):
    return recipe.model_copy(update={"augmentation": recipe.augmentation.model_copy(update={"backend": backend})})


@pytest.fixture
def storage(tmp_path):
    """Three sweeps, on a machine where the backend `auto` is `tensor`."""
    for written, (name, *changes) in enumerate((("old",), ("new",), ("other", "backbone.name=resnet18"))):
        folder = SweepFolder(tmp_path / name)
        space = load_space("quick", ["search.trials=8", "epochs=1", "search.scheduler={name: none}", *changes])
        create_folder(folder, make_header(name, "1", space, Settings()), WarmStart(recipes=()))
        ledger = Ledger(folder.ledger)
        controller = Controller(space, ledger, seed=written, resolve=lambda recipe: with_backend(recipe, "tensor"))
        while (trial := controller.next_trial()) is not None:
            score = 0.9 if name == "old" and trial.number == 1 else trial.number / 10  # a baseline is its best
            controller.report(trial.number, Report(1, {}, score, 0.01, 1, [], 0.0))
        ledger.close()
        os.utime(folder.ledger, (written, written))
    return tmp_path


def begin(storage, *named, **more):
    return read_request(SweepOptions("quick", storage=str(storage), warm_start=named, **more))


def list_best(storage, name):
    """Return the recipes of a sweep as the space of `begin` has them, the best first."""
    ranked = SweepRecord.open(SweepFolder(storage / name)).trials.ranked()
    epochs = load_space("quick").recipe["epochs"]
    return [with_backend(trial.recipe.model_copy(update={"epochs": epochs}), "auto") for trial in ranked]


def test_it_begins_with_the_best_of_each_named_sweep_then_with_the_second_of_each(storage):
    request = begin(storage, "old", "new")
    old, new = list_best(storage, "old"), list_best(storage, "new")
    assert list(request.warm_starts) == [old[0], new[0], old[1], new[1], old[2], new[2]]
    assert request.notes[-1] == "Begins with the best recipes of old, new."


def test_of_all_sweeps_those_with_the_same_backbone_count_from_the_latest_on_without_baselines(storage):
    request = begin(storage, "all")
    old, new = list_best(storage, "old"), list_best(storage, "new")
    assert list(request.warm_starts) == [new[0], old[1], new[1], old[2]]
    assert request.notes[-1] == "Begins with the best recipes of new, old."


def test_a_recipe_that_several_sweeps_have_counts_once(storage):
    shutil.copytree(storage / "new", storage / "again")
    os.utime(storage / "again" / "ledger.jsonl", (5, 5))
    old, new = list_best(storage, "old"), list_best(storage, "new")
    assert list(begin(storage, "all").warm_starts) == [new[0], old[1], new[1], old[2]]
    assert list(begin(storage, "new", "again").warm_starts) == new[:3]


def test_all_may_be_none(tmp_path):
    request = begin(tmp_path / "empty", "all")
    assert request.warm_starts == ()
    assert request.notes[-1] == "Begins with the best recipes of no sweep: none here has one for this space."
    assert not [note for note in begin(tmp_path / "empty").notes if "Begins" in note]


def test_a_damaged_sweep_is_refused_also_as_one_of_all(storage):
    (storage / "old" / "ledger.jsonl").write_text("nothing")
    for name in ("old", "all"):
        with pytest.raises(UserError, match="the ledger is empty.*sweep rm old"):
            begin(storage, name)
