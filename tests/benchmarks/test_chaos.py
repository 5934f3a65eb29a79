"""Each kind of kill once, on a cluster of three nodes with an MLflow server, that two sweeps share."""

from inspect import signature

import pytest

from benchmarks import fast_trainer
from benchmarks.chaos import KINDS, run_chaos
from benchmarks.sweep_scene.faults import find_faults
from benchmarks.sweep_scene.servers import find_postgres
from training.train import train

pytestmark = pytest.mark.timeout(1800)  # a cluster, a server and several drivers start, one after the other


@pytest.mark.cluster
def test_two_sweeps_survive_their_workers_nodes_servers_drivers_and_head(tmp_path):
    kills = ["worker", "node", "server", "drain", "join", "sigterm", "head", "driver"]
    if find_postgres():
        kills.insert(2, "postgres")
    counts = run_chaos(tmp_path, kills, sweeps=2, seed=3, fast=True)
    assert find_faults(counts, KINDS) == {}, counts
    assert [counts[kind] for kind in kills] == [1] * len(kills)
    assert counts["trials found"] == counts["trials expected"]


def test_the_trainer_without_training_takes_no_argument_that_the_real_one_does_not():
    fast, real = (signature(trainer).parameters for trainer in (fast_trainer.train, train))
    assert [name for name in fast if name not in real] == []
