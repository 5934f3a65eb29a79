"""The last trainings on the workers of a real Ray: several at a time, and what becomes of those that are lost."""

import time

import psutil
import pytest
import ray
import torch

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.evaluation import last_workers
from search.evaluation.last_workers import LastWorkers, train_last
from search.runner.machines.capacity import Capacity, plan_demand
from search.runner.machines.cluster import list_nodes
from search.runner.machines.fork_start import SWITCH
from search.runner.machines.ray_process import start_ray
from tests.waiting import wait_until
from training.data.sources.image_folder import ImageFolder


@pytest.fixture(scope="module")
def capacity():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        start_ray(None)
    nodes = list_nodes()
    yield Capacity(plan_demand(nodes, 1, 0), nodes)
    ray.shutdown()


@pytest.fixture
def record(home):
    return SweepRecord.open(SweepFolder(home / "sweeps" / "tiny"))


@pytest.fixture
def recipe(record):
    return record.trials.best().recipe


@pytest.fixture
def lines():
    return []


def find_workers():
    def is_worker(process):
        try:
            return process.cmdline()[:1] == ["ray::tiny/killed"]  # named by sweep and training
        except psutil.Error:  # it has just ended
            return False

    return [process for process in psutil.Process().children(recursive=True) if is_worker(process)]


def test_two_train_at_a_time_in_workers_as_one_does_here(record, recipe, capacity, lines, monkeypatch):
    other = recipe.model_copy(update={"seed": 5})
    here = train_last(recipe.model_dump(), str(record.folder.path / "here"), "val_accuracy", 1, 0, False)
    monkeypatch.setattr(last_workers, "train_last", None)  # in this process
    monkeypatch.setattr(capacity, "widen", lambda lanes: capacity.demand)
    with LastWorkers(record, capacity, lines.append, lanes=2) as workers:
        for name, each in (("one", recipe), ("two", other)):
            assert workers.has_room()
            workers.start(name, each)
        assert not workers.has_room()
        ended = dict(workers.wait() for _ in range(2))
    assert workers.running == 0
    assert {name: trained.recipe.seed for name, trained in ended.items()} == {"one": recipe.seed, "two": 5}
    assert (ended["one"].recipe.model_dump(), ended["one"].classes, ended["one"].threads) == (here[0], *here[2:])
    torch.testing.assert_close(ended["one"].weights, here[1])
    assert not torch.equal(*(trained.weights["fc.weight"] for trained in ended.values()))
    assert not (record.folder.path / "final").exists()
    assert lines == [f"Training {name} on training and validation images, 2 epochs." for name in ("one", "two")]


@pytest.mark.slow
def test_what_fails_dies_or_has_no_time_gives_no_model(record, recipe, capacity, lines):
    missing = recipe.model_copy(update={"data": ImageFolder(root="nowhere")})
    long = recipe.model_copy(update={"epochs": 5000})
    with LastWorkers(record, capacity, lines.append) as workers:
        workers.start("missing", missing)
        assert workers.wait() == ("missing", None)
        assert lines.pop().startswith("missing was not trained: data.root=nowhere")
        workers.start("killed", long)
        wait_until(lambda: list((record.folder.path / "final").glob("*/last.ckpt")))
        [worker] = find_workers()
        worker.kill()
        assert workers.wait() == ("killed", None)
        assert lines.pop().startswith("killed was not trained: ")
    began = time.monotonic()
    with LastWorkers(record, capacity, lines.append, until=began + 2) as workers:
        workers.start("two", long)
        workers.start("three", long)
        assert {workers.wait(), workers.wait()} == {("two", None), ("three", None)}
    with LastWorkers(record, capacity, lines.append) as workers:
        workers.start("next", recipe)  # the CPUs are free again
        assert workers.wait()[1] is not None
