"""A worker leaves a node that will go away, and its trial goes on elsewhere without a mark against it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.trials import Trials
from search.runner.machines.drain import DrainWatch
from tests.real_sweeps import FAST, SPACE, start, wait_for


class Left(Exception):
    """The worker has left its node."""


def leave():
    raise Left


def watch_at(seconds, draining=None):
    """Return a watch in its second epoch, which began at 100 s, after one of 10 s; the time is now `seconds`."""
    clock = [90.0]
    watch = DrainWatch("here", look=lambda: draining or {}, leave=leave, now=lambda: clock[0])
    watch.epoch_began, clock[0] = 90.0, 100.0
    watch.end_epoch()
    clock[0] = seconds
    return watch


def look_once(watch, monkeypatch):
    looks = iter([False, True])
    monkeypatch.setattr(watch.is_over, "wait", lambda seconds: next(looks))
    watch._watch()


@pytest.mark.parametrize(("deadline_ms", "has_time"), [(109_999, False), (110_001, True), (0, True)])
def test_a_worker_leaves_at_once_if_its_epoch_cannot_end_before_the_node_goes_away(deadline_ms, has_time, monkeypatch):
    watch = watch_at(105, {"here": deadline_ms})
    if not has_time:
        with pytest.raises(Left):
            look_once(watch, monkeypatch)
        return
    look_once(watch, monkeypatch)
    with pytest.raises(Left):  # after the report of the epoch
        watch.end_epoch()


def test_a_worker_in_its_first_epoch_leaves_at_once(monkeypatch):
    watch = DrainWatch("here", look=lambda: {"here": 1_000_000}, leave=leave, now=lambda: 0.0)
    with pytest.raises(Left):
        look_once(watch, monkeypatch)


def test_a_worker_stays_while_another_node_drains(monkeypatch):
    watch = watch_at(105, {"there": 1})
    look_once(watch, monkeypatch)
    watch.end_epoch()


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_trials_leave_a_draining_node_at_once_and_go_on_elsewhere(tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("FAST_EPOCH_SECONDS", "2")
    (tmp_path / "space.yaml").write_text(SPACE)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    options = ("--name", "drained", "--trials", "4", "--address", cluster.address)
    driver = start(tmp_path, "run", "space.yaml", *options, "search.scheduler={name: none}", command=FAST)
    ledger = tmp_path / "sweeps" / "drained" / "ledger.jsonl"
    try:
        wait_for(ledger, lambda events: {e.trial for e in events if e.event == "report"} >= {0, 1}, driver)
        command = [Path(sys.executable).parent / "ray", "drain-node", "--address", cluster.address]
        command += ["--node-id", node.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
        command += ["--reason-message", "spot", "--deadline-remaining-seconds", "300"]
        subprocess.run(command, check=True, capture_output=True, timeout=200)
        events = wait_for(ledger, lambda events: any(event.event == "lost" for event in events), driver)
        (lost,) = [event for event in events if event.event == "lost"]
        assert lost.cause == "preemption", lost.reason
        assert driver.wait(400) == 0
        events = wait_for(ledger, lambda events: True, driver=None)
        trials = Trials("val_accuracy", events)
        assert [trial.state for trial in trials] == ["completed"] * 4
        # There was time for the epoch, so none was lost: each began once, apart from the one after the notice.
        log = (ledger.parent / "trials" / f"{lost.trial:04d}" / "log.txt").read_text()
        assert log.count("Epoch ") <= 4
        assert sum(event.event == "lost" for event in events) == 1  # no trial was given to the draining node again
    finally:
        driver.send_signal(signal.SIGKILL)
        cluster.shutdown()


def test_the_driver_does_not_count_a_draining_node_as_room(monkeypatch):
    import ray

    from search.runner.machines import cluster

    nodes = [
        {"Alive": True, "NodeID": name, "NodeManagerHostname": name, "Resources": {"CPU": 2}, "Labels": {}}
        for name in ("a", "b")
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(cluster, "list_draining", lambda: {"b": 0})
    assert [node.id for node in cluster.list_nodes()] == ["a"]
