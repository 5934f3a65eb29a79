"""What the adapter makes of Ray's messages about workers that are gone."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from ray import tune
from ray._private.state import state

from ledger.file import Ledger
from ledger.folder import SweepFolder
from search.core.controller import Controller
from search.runner.executor import _make_tuner
from search.runner.machines.capacity import Capacity, Demand, plan_demand
from search.runner.machines.cluster import Node, list_nodes
from search.runner.machines.ray_failures import describe_death
from search.runner.ray_adapter import LedgerScheduler, LedgerSearcher, make_placing
from search.runner.worker import TrialInput
from spaces.load import load_space

EMPTY = Capacity(Demand(1, 0), [])
# As Ray 2.60 prints them, shortened.
SIGTERM = (
    "The actor died unexpectedly before finishing this task.\nThe actor is dead because its worker process has died. "
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. The process receives a SIGTERM."
)
KILLED = (
    "The actor died unexpectedly before finishing this task.\nThe actor is dead because its worker process has died. "
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2."
)
NODE = (
    "The actor died unexpectedly before finishing this task.\nThe actor died because its node has died. Node Id: 0f0f"
)
AWAY = "The actor b9 is unavailable: The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14."


@pytest.fixture(autouse=True)
def no_node_drains(monkeypatch):
    monkeypatch.setattr(state, "get_draining_nodes", dict)


@pytest.fixture
def controller(tmp_path):
    return Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))


def make_input(trial):
    return TrialInput(trial.number, {}, "", "", "best", 0, 1, False, 0, 0, {}, [])


def test_rays_lists_name_the_sweep_and_the_trial_also_of_a_name_with_a_dot(controller, tmp_path, monkeypatch):
    """Of the name of a class, the lists show what is behind the last dot."""
    made, display = [], SimpleNamespace(line=print)
    monkeypatch.setattr(tune, "Tuner", lambda workers, **parts: made.append((workers, parts["tune_config"])))
    work = SimpleNamespace(
        folder=SweepFolder(tmp_path / "2.0_x"), controller=controller, capacity=EMPTY, display=display
    )
    _make_tuner(work, SimpleNamespace(look=None, should_stop=None, leave=None))
    [(workers, config)] = made
    assert workers.__name__ == workers.__qualname__ == "2_0_x"
    assert config.trial_name_creator(SimpleNamespace(config={"trial": 7})) == "2.0_x/0007"


@pytest.mark.parametrize(
    ("message", "cause"), [(SIGTERM, "preemption"), (NODE, "preemption"), (AWAY, "preemption"), (KILLED, "worker")]
)
def test_a_lost_machine_does_not_count_as_a_worker_that_died(controller, message, cause, tmp_path):
    controller.next_trial()
    (tmp_path / "error.txt").write_text(message)
    trial = SimpleNamespace(trial_id="x", config={"trial": 0}, error_file=str(tmp_path / "error.txt"))
    LedgerScheduler(controller, EMPTY).on_trial_error(None, trial)
    lost = controller.ledger.events[-1]
    assert (lost.event, lost.cause) == ("lost", cause)
    assert lost.reason in message


@pytest.mark.parametrize(("node", "cause"), [("here", "preemption"), ("there", "worker")])
@pytest.mark.parametrize("actor", ["17f6", ""])
def test_a_worker_that_dies_on_a_draining_node_has_left_it_whatever_ray_tells(
    node, cause, actor, tmp_path, monkeypatch
):
    monkeypatch.setattr(state, "get_draining_nodes", lambda: {node: 0} if actor or node == "here" else {})
    monkeypatch.setattr(state, "actor_table", {"17f6": {"State": "DEAD", "Address": {"NodeID": "here"}}}.get)
    more = f"\n\tclass_name: ImplicitFunc\n\tactor_id: {actor}\n\tpid: 7\nIt died." if actor else ""
    (tmp_path / "error.txt").write_text(f"Failure # 1\nThe actor died unexpectedly before finishing this task.{more}\n")
    trial = SimpleNamespace(error_file=str(tmp_path / "error.txt"))
    assert describe_death(trial)[1] == cause


def test_the_reason_of_a_lost_device_is_the_sentence_about_it(tmp_path):
    sentence = "data_parallel.devices=2: device 2 hangs, because it made no progress for 111 s."
    text = f"ray::ImplicitFunc.train() (pid=7)\n  File x.py\ntraining.errors.LostDevice: {sentence}"
    (tmp_path / "error.txt").write_text(text)
    trial = SimpleNamespace(error_file=str(tmp_path / "error.txt"))
    assert describe_death(trial) == (sentence, "worker")


def test_a_trial_that_fails_on_an_unprepared_node_is_moved(controller):
    scheduler = LedgerScheduler(controller, Capacity(Demand(1, 0), [Node("good", "", 1, 0)]))
    for number, (node, event) in enumerate([("bad", "lost"), ("good", "end")]):
        assert controller.next_trial().number == 0
        trial = SimpleNamespace(trial_id=str(number), config={"trial": 0})
        message = {"end": "failed", "reason": "data.root=photos: no such folder.", "node": node}
        scheduler.on_trial_result(None, trial, {"message": json.dumps(message)})
        scheduler.on_trial_complete(None, trial, {})
        assert controller.ledger.events[-1].event == event
    assert controller.trials.by_number[0].preemptions == 1


def test_the_function_that_places_trials_needs_none_of_our_packages_in_a_worker():
    import cloudpickle

    text = cloudpickle.dumps(make_placing())
    code = (
        "import pickle, sys; sys.modules.update(dict.fromkeys(('search', 'spaces', 'ledger', 'analysis', 'training')));"
        "print(pickle.loads(sys.stdin.buffer.read())({'selector': {}, 'resources': {'CPU': 1}}).bundles)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, timeout=200)
    assert done.stdout.strip() == b"[{'CPU': 1.0}]", done.stderr


@pytest.mark.slow
def test_a_trial_runs_on_no_node_that_it_must_avoid_and_on_one_with_what_it_needs():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1, resources={"scratch": 1}, labels={"zone": "a"})
    try:
        ray.init(cluster.address, log_to_driver=False)
        head, other = sorted(list_nodes(), key=lambda node: len(node.offers))
        assert (head.offers, other.offers) == (set(), {"scratch", "zone=a"})
        for needs, avoided, expected in (
            (None, other, head),
            (None, head, other),
            ("scratch", None, other),
            ("zone=a", None, other),
        ):
            demand = plan_demand([head, other], 1, 0, needs)
            failed = {node.id: "no such folder." for node in (avoided, Node("0f" * 28, "", 1, 0)) if node}
            capacity = Capacity(demand, [head, other], failed=failed)
            group = make_placing()({"resources": demand.resources, "selector": capacity.selector}).to_placement_group()
            assert group.wait(60)
            (place,) = ray.util.placement_group_table(group)["bundles_to_node_id"].values()
            assert place == expected.id
            ray.util.remove_placement_group(group)
    finally:
        ray.shutdown()
        cluster.shutdown()


LOW = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."


@pytest.mark.parametrize("by_worker", [True, False])
def test_a_trial_that_runs_out_of_memory_ends_and_is_not_tried_again(controller, by_worker, tmp_path):
    controller.next_trial()
    (tmp_path / "error.txt").write_text(LOW)
    trial = SimpleNamespace(trial_id="x", config={"trial": 0}, error_file=str(tmp_path / "error.txt"))
    scheduler = LedgerScheduler(controller, EMPTY)
    if by_worker:
        message = json.dumps({"end": "out_of_memory", "reason": "CUDA out of memory"})
        scheduler.on_trial_result(None, trial, {"message": message})
        scheduler.on_trial_complete(None, trial, {})
    else:
        scheduler.on_trial_error(None, trial)
    assert controller.trials.by_number[0].state == "out_of_memory"
    assert controller.next_trial().number == 1


class Limited:
    """The part of a cluster that other sweeps leave to this one."""

    limit, is_known = None, False

    def ask(self, *claim):
        self.claim = claim


def test_a_trial_gives_its_room_to_another_sweep_after_an_epoch_but_not_after_its_last(controller):
    shared = Limited()
    capacity = Capacity(Demand(1, 0), [Node("a", "", 4, 0)], look=lambda: [Node("a", "", 4, 0)], shared=shared)
    searcher = LedgerSearcher(controller, make_input, capacity.look)
    scheduler = LedgerScheduler(controller, capacity)
    first, second = controller.next_trial(), controller.next_trial()

    def report(trial, epoch):
        values = {"epoch": epoch, "metrics": {}, "score": 0.5, "standard_error": 0.1, "best_epoch": 1, "steps": []}
        message = {"report": values | {"time": 1.0}, "worker_seconds": 1.0, "host": "gpu-7"}
        ray_trial = SimpleNamespace(trial_id=str(trial.number), config={"trial": trial.number})
        return scheduler.on_trial_result(None, ray_trial, {"message": json.dumps(message)})

    assert searcher.suggest("x") is None, "nothing starts before the first answer"
    assert capacity.slots == 4, "and yet the sweep says how many fit"
    assert shared.claim == (2, 4, 4, []), "two run, and four fit"
    shared.is_known, shared.limit = True, 1
    assert searcher.suggest("x") is None
    for epoch in range(1, first.epochs + 1):
        shared.limit = 1 if epoch == first.epochs else None
        assert report(first, epoch) == "CONTINUE"
    assert (first.state, first.host) == ("completed", "gpu-7")
    shared.limit = 0
    assert report(second, 1) == "STOP"
    lost = controller.ledger.events[-1]
    assert (lost.event, lost.cause, second.state, second.crashes + second.preemptions) == (
        "lost",
        "share",
        "interrupted",
        0,
    )
    assert searcher.suggest("x") is None
    shared.limit = 1
    assert searcher.suggest("x")["trial"] == second.number
