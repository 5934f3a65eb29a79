"""A rate is found once for each set-up of a sweep, and never used for another set-up."""

from __future__ import annotations

import os
import socket
import threading
from itertools import count
from multiprocessing import get_context

import pytest
import timm
import torch

import training.loop.auto_values.finders as finders
from training.data.load_data import load_data
from training.distributed.rank import ALONE, Rank
from training.errors import UserError
from training.loop.auto_values.found_rates import FoundRates, identify_setup
from training.process.resources import ONE_CPU, Resources
from training.train import train

AUTO = {"optimizer": {"name": "momentum", "lr": "auto"}, "backbone": {"name": "test_resnet", "weights": "letters"}}


@pytest.fixture
def find(tiny_recipe, tmp_path, monkeypatch):
    """Return the rate that a training would use. The range test is replaced, and each one adds to `find.tests`."""
    monkeypatch.setattr(finders, "run_range_test", lambda *_: find.tests.append(1) or 0.06)
    monkeypatch.setattr("training.train._fit", lambda *_: "diverged")  # the training itself is not the point
    folders = (tmp_path / str(number) for number in count())

    def find(resources=ONE_CPU, **fields):
        recipe = tiny_recipe(**{**AUTO, **fields})
        return train(recipe, next(folders), resources=resources, cache=tmp_path / "rates").recipe.optimizer.lr

    find.tests = []
    return find


def test_a_known_rate_gives_the_same_weights_as_finding_it(tiny_recipe, load_weights, tmp_path, monkeypatch):
    def run(name, cache):
        (tmp_path / name).mkdir()
        outcome = train(tiny_recipe(**AUTO), tmp_path / name, cache=cache)
        return outcome.recipe, load_weights(tmp_path / name)

    recipe, weights = run("without", None)
    assert run("finds", tmp_path / "rates")[0] == recipe
    monkeypatch.setattr(finders, "run_range_test", lambda *_: pytest.fail("the rate is known"))
    known, from_cache = run("knows", tmp_path / "rates")
    assert known == recipe
    assert [name for name in weights if not torch.equal(weights[name], from_cache[name])] == []


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 1},
        {"schedule": {"name": "cosine"}},
        {"averaging": {"name": "ema"}},
        {"unfreeze": {"level": "full"}, "accumulation": {"schedule": [[1, 2]]}},
    ],
)
def test_what_comes_after_the_test_shares_the_rate(other, find):
    assert find() == find(**other) == 0.06
    assert len(find.tests) == 1


def test_a_third_of_a_known_rate_needs_no_test(find):
    assert find() == 0.06
    assert find(optimizer={"name": "momentum", "lr": "auto/3"}) == 0.02
    assert len(find.tests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"batch_size": 8},
        {"data": {"name": "digits", "train_size": 65}},
        {"data": {"name": "digits", "train_size": 64, "split_seed": 1}},
        {"backbone": {"name": "test_resnet", "weights": "none"}},
        {"optimizer": {"name": "momentum", "lr": "auto", "momentum": 0.8}},
        {"label_smoothing": {"alpha": 0.1}},
        {"unfreeze": {"level": "most"}},
        {"accumulation": {"batches": 2}},
        {"resources": Resources(threads=2)},
    ],
)
def test_whatever_can_change_the_result_is_tested_anew(other, find):
    find()
    find(**other)
    assert len(find.tests) == 2


def test_another_host_another_device_or_another_number_of_processes_is_another_set_up(tiny_recipe, monkeypatch):
    recipe = tiny_recipe()
    data = load_data(recipe.data)
    keys = [identify_setup(recipe, data, ONE_CPU, rank) for rank in (ALONE, ALONE, Rank(0, 2))]
    monkeypatch.setattr(socket, "gethostname", lambda: "other")
    keys.append(identify_setup(recipe, data, ONE_CPU, ALONE))
    for name in ("A100", "H100"):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda name=name: name)
        keys.append(identify_setup(recipe, data, Resources(device="cuda"), ALONE))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 5


def test_a_file_of_weights_that_changed_is_another_set_up(find, tmp_path):
    weights = tmp_path / "weights.pt"
    model = timm.create_model("test_resnet", num_classes=10)
    for scale in (1.0, 1.1):
        torch.save({name: value * scale for name, value in model.state_dict().items()}, weights)
        os.utime(weights, (scale, scale))
        find(backbone={"name": "test_resnet", "weights": str(weights)})
    assert len(find.tests) == 2


def test_a_damaged_entry_is_found_again(find, tmp_path):
    find()
    (entry,) = [path for path in (tmp_path / "rates").iterdir() if not path.suffix]
    entry.write_text("")
    assert find() == float(entry.read_text()) == 0.06
    assert len(find.tests) == 2


def test_a_failed_test_is_not_stored_and_leaves_no_lock(tmp_path):
    rates = FoundRates(tmp_path, ALONE)

    def fail():
        raise UserError("the loss falls at no rate")

    with pytest.raises(UserError):
        rates.recall(lambda: "key", fail)
    assert FoundRates(tmp_path, ALONE).recall(lambda: "key", lambda: 0.5) == 0.5


def test_a_training_that_needs_the_rate_which_another_one_finds_waits_for_it(tmp_path):
    finding, may_end, got = threading.Event(), threading.Event(), []

    def find_slowly():
        finding.set()
        may_end.wait(10)
        return 0.25

    first = threading.Thread(target=lambda: FoundRates(tmp_path, ALONE).recall(lambda: "key", find_slowly))
    second = threading.Thread(
        target=lambda: got.append(FoundRates(tmp_path, ALONE).recall(lambda: "key", lambda: pytest.fail("found twice")))
    )
    first.start()
    finding.wait(10)
    second.start()
    second.join(0.2)
    assert got == []
    may_end.set()
    second.join(10)
    first.join(10)
    assert got == [0.25]


def _die(folder):
    FoundRates(folder, ALONE).recall(lambda: "key", lambda: os._exit(1))


def test_after_a_worker_died_in_its_test_another_one_finds_the_rate(tmp_path):
    process = get_context("fork").Process(target=_die, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 1
    assert FoundRates(tmp_path, ALONE).recall(lambda: "key", lambda: 0.5) == 0.5


def test_without_a_place_for_the_lock_the_rate_is_found_without_it(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert FoundRates(tmp_path / "file" / "rates", ALONE).recall(lambda: "key", lambda: 0.5) == 0.5
    assert "no lock is possible there" in caplog.text


def test_only_the_first_process_of_a_training_uses_files(tmp_path):
    class Second(Rank):
        def gather(self, value):
            assert value is None
            return [0.125, value]

    assert FoundRates(tmp_path, Second(1, 2)).recall(lambda: "key", lambda: pytest.fail("known")) == 0.125
    assert list(tmp_path.iterdir()) == []
