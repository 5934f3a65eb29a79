"""Each kind of kill once, on a cluster of two nodes with an MLflow server."""

import pytest

from benchmarks.chaos import KINDS, find_faults, run_chaos

pytestmark = pytest.mark.timeout(1800)  # a cluster, a server and two drivers start, one after the other


@pytest.mark.slow
def test_a_sweep_survives_its_workers_nodes_server_and_driver(tmp_path):
    counts = run_chaos(tmp_path, ["worker", "node", "server", "driver"], seed=3, fast=True)
    assert find_faults(counts) == {}, counts
    assert [counts[kind] for kind in KINDS] == [1, 1, 1, 1]
    assert counts["trials found"] == counts["trials expected"]
