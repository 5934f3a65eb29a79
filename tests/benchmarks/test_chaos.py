"""Each kind of kill once, on a cluster of three nodes with an MLflow server."""

import pytest

from benchmarks.chaos import KINDS, run_chaos
from benchmarks.sweep_scene.faults import find_faults
from benchmarks.sweep_scene.servers import find_postgres

pytestmark = pytest.mark.timeout(1800)  # a cluster, a server and several drivers start, one after the other


@pytest.mark.cluster
def test_a_sweep_survives_its_workers_nodes_servers_driver_and_head(tmp_path):
    kills = ["worker", "node", "server", "drain", "join", "sigterm", "head", "driver"]
    if find_postgres():
        kills.insert(2, "postgres")
    counts = run_chaos(tmp_path, kills, seed=3, fast=True)
    assert find_faults(counts, KINDS) == {}, counts
    assert [counts[kind] for kind in kills] == [1] * len(kills)
    assert counts["trials found"] == counts["trials expected"]
