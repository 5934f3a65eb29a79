"""The room for trials follows nodes as they join and leave, and machines that differ."""

import signal

import pytest

from ledger.file import read_events
from ledger.trials import Trials
from search.runner.machines import capacity as module
from search.runner.machines.capacity import Capacity, Demand, plan_demand
from search.runner.machines.cluster import Node, share_of
from search.runner.machines.preparation import MachineFacts, compare_versions, input_key, list_versions, make_resolver
from tests.real_sweeps import FAST, SPACE, call, start, wait_for
from training.errors import UserError
from training.recipe import Recipe

ONE = Node("1", "one", 2, 0)
TWO = Node("2", "two", 3, 0)
BIG = frozenset({"accelerator_type:A100", "zone=a"})
SMALL = frozenset({"accelerator_type:T4", "scratch"})
GPUS = [Node("a", "big", 32, 4, BIG), Node("b", "small", 8, 8, SMALL), Node("c", "head", 16, 0, frozenset({"zone=b"}))]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0)


@pytest.fixture
def cluster():
    """A cluster whose nodes and preparations the test changes."""

    class Cluster:
        def __init__(self):
            self.nodes, self.results, self.lines = [ONE], {}, []

        def make(self, **more):
            demand = Demand(1, 0)
            prepare = lambda node: lambda: self.results.get(node.id)  # noqa: E731
            look = lambda: list(self.nodes)  # noqa: E731
            return Capacity(demand, [ONE], look=look, prepare=prepare, say=self.lines.append, **more)

    return Cluster()


def test_a_node_that_joins_counts_when_it_is_prepared(cluster):
    capacity = cluster.make()
    assert capacity.look() == 2
    cluster.nodes.append(TWO)
    assert capacity.look() == 2
    assert cluster.lines == ["two joined and is being prepared."]
    cluster.results["2"] = ""
    assert capacity.look() == capacity.slots == 5


def test_a_node_that_leaves_no_longer_counts_and_may_come_back(cluster):
    capacity = cluster.make()
    cluster.nodes = []
    assert capacity.look() == 0
    cluster.nodes, cluster.results["1"] = [ONE], ""
    assert capacity.look() == 2


def test_a_node_that_cannot_train_never_counts_and_is_named_once(cluster):
    capacity = cluster.make()
    cluster.nodes.append(TWO)
    cluster.results["2"] = "data.root=photos: no such folder."
    assert [capacity.look() for _ in range(3)] == [2, 2, 2]
    assert cluster.lines[1:] == ["two gets no trials: data.root=photos: no such folder."]
    assert (capacity.avoided, capacity.is_prepared("1"), capacity.is_prepared("2")) == (["2"], True, False)
    assert capacity.problem == ""


def test_a_node_that_is_being_prepared_is_avoided(cluster):
    capacity = cluster.make()
    cluster.nodes.append(TWO)
    capacity.look()
    assert capacity.avoided == ["2"]
    cluster.results["2"] = ""
    capacity.look()
    assert capacity.avoided == []


def test_a_node_that_failed_before_the_first_trial_is_not_prepared_again(cluster):
    cluster.nodes.append(TWO)
    capacity = cluster.make(failed={"2": "no such folder."})
    assert capacity.avoided == ["2"]
    assert capacity.look() == 2
    assert (capacity.avoided, cluster.lines) == (["2"], [])


def test_a_cluster_with_failed_nodes_alone_is_a_problem(cluster):
    capacity = cluster.make(failed={"2": "no such folder."}, most=16)
    cluster.nodes = []
    capacity.look()
    assert capacity.problem == ""  # an autoscaler may start nodes
    cluster.nodes = [TWO]
    capacity.look()
    assert capacity.problem == "no node is left for trials (no such folder)"
    cluster.nodes.append(Node("3", "three", 1, 0))
    capacity.look()
    assert capacity.problem == ""


def test_more_trials_than_there_is_room_for_wait_as_demand_if_the_user_wants_so(cluster):
    capacity = cluster.make(most=16)
    cluster.nodes = []
    assert capacity.look() == 16


def test_one_machine_runs_no_more_trials_than_fit():
    assert [Capacity(Demand(1, 0), [TWO], most=most).slots for most in (1, 16, None)] == [1, 3, 3]


def test_the_nodes_are_not_listed_at_each_draw(cluster, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 1000)
    capacity = cluster.make()
    capacity.look()
    cluster.nodes = []
    assert capacity.look() == 2


def test_only_nodes_that_can_run_a_trial_have_room():
    demand = plan_demand(GPUS, None, None)
    assert (demand.cpus, demand.gpus) == (1, 1)
    assert [demand.slots_on(node) for node in GPUS] == [4, 8, 0]


def test_a_trial_uses_the_cpus_that_belong_to_its_gpus_on_its_own_node():
    assert [share_of(node, 1, 1) for node in GPUS] == [8, 1, 1]
    assert share_of(GPUS[0], 1, 0.5) == 4
    assert share_of(GPUS[1], 2, 0.5) == 2  # never less than it requested


def test_an_accelerator_narrows_the_nodes():
    demand = plan_demand(GPUS, None, None, "A100")
    assert (demand.cpus, [demand.slots_on(node) for node in GPUS]) == (8, [4, 0, 0])
    assert demand.resources == {"CPU": 8, "GPU": 1, "accelerator_type:A100": 0.001}
    with pytest.raises(UserError, match="--accelerator=H100: the machines have A100, T4, scratch, zone=a, zone=b"):
        plan_demand(GPUS, None, None, "H100")


def test_a_resource_or_a_label_narrows_the_nodes_too():
    demand = plan_demand(GPUS, None, None, "scratch")
    assert (demand.resources, demand.labels) == ({"CPU": 1, "GPU": 1, "scratch": 0.001}, {})
    assert [demand.slots_on(node) for node in GPUS] == [0, 8, 0]
    demand = plan_demand(GPUS, None, None, "zone=b")
    assert (demand.resources, demand.labels) == ({"CPU": 1}, {"zone": "b"})
    assert [demand.slots_on(node) for node in GPUS] == [0, 0, 16]
    capacity = Capacity(demand, GPUS[2:], failed={"a": "no such folder.", "b": "no such folder."})
    assert capacity.selector == {"zone": "b", "ray.io/node-id": "!in(a,b)"}
    with pytest.raises(UserError, match="--accelerator=zone=c: the machines have"):
        plan_demand(GPUS, None, None, "zone=c")


def test_an_empty_accelerator_is_none():
    assert plan_demand(GPUS, None, None, "") == plan_demand(GPUS, None, None)


def test_a_cluster_that_can_grow_may_have_no_machine_yet():
    assert plan_demand([], None, 1, can_grow=True) == Demand(1, 1)
    with pytest.raises(UserError, match=r"^--address: every node of the cluster is draining\."):
        plan_demand([], None, None)
    assert plan_demand([ONE], 4, None, "H100", can_grow=True) == Demand(4, 1, "accelerator_type:H100")
    assert plan_demand([ONE], 4, 0, "zone=c", can_grow=True) == Demand(4, 0, "zone=c")


def test_cpus_and_gpus_must_be_on_the_same_machine():
    with pytest.raises(UserError, match="--cpus-per-trial=16 and --gpus-per-trial=8: no machine has both"):
        plan_demand(GPUS, 16, 8)


def test_values_on_which_machines_disagree_are_left_to_each_trial():
    recipe = Recipe()
    same = recipe.preprocessing.model_copy(update={"image_size": 32, "mean": [0.5, 0.5, 0.5]})
    gpu, cpu = (MachineFacts(resolved={input_key(recipe): (same, backend)}) for backend in ("dali", "tensor"))
    assert make_resolver([gpu, gpu])(recipe).augmentation.backend == "dali"
    assert make_resolver([gpu, cpu])(recipe) == make_resolver([cpu, gpu])(recipe) == recipe


def test_a_machine_with_other_software_is_named():
    own = list_versions()
    facts = [MachineFacts(host="same", versions=own), MachineFacts(host="old", versions={**own, "torch": "1.0"})]
    assert compare_versions(facts) == [f"old has torch 1.0 ({own['torch']} here): its results may differ."]


def test_listing_the_versions_takes_the_code_into_account(tmp_path, monkeypatch):
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "a.py").write_text("x = 1")
    monkeypatch.setattr("search.runner.machines.preparation.project_root", lambda: str(tmp_path))
    before = list_versions()
    (tmp_path / "training" / "a.py").write_text("x = 2")
    changed = [name for name, version in list_versions().items() if version != before[name]]
    assert changed == ["this program's code"]


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_node_whose_preparation_failed_gets_no_trials(tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    (tmp_path / "space.yaml").write_text(SPACE)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=2, env_vars={"FAST_PROBLEM": "data.root=photos: no such folder."})
    try:
        options = ("--name", "one", "--address", cluster.address)
        printed = call(tmp_path, "run", "space.yaml", *options, command=FAST)
        assert printed.count("gets no trials: data.root=photos: no such folder.") == 1
        trials = Trials("val_accuracy", read_events(tmp_path / "sweeps" / "one" / "ledger.jsonl"))
        assert {trial.state for trial in trials} <= {"completed", "stopped"}
        assert len(trials) == 6
    finally:
        cluster.shutdown()


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_node_that_joins_a_running_sweep_gets_trials(tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("FAST_EPOCH_SECONDS", "0.5")  # the workers read it from the node
    (tmp_path / "space.yaml").write_text(SPACE)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    options = ("--name", "joined", "--trials", "1000", "--address", cluster.address)
    driver = start(tmp_path, "run", "space.yaml", *options, "search.scheduler={name: none}", command=FAST)
    ledger = tmp_path / "sweeps" / "joined" / "ledger.jsonl"
    try:
        wait_for(ledger, lambda events: any(event.event == "report" for event in events), driver)
        cluster.add_node(num_cpus=1)
        wait_for(ledger, lambda events: count_running(events) == 2, driver)  # however long its preparation takes
        driver.send_signal(signal.SIGINT)
        assert "joined and is being prepared" in driver.communicate(timeout=500)[0]
        assert driver.returncode == 130
    finally:
        driver.kill()
        cluster.shutdown()


def count_running(events):
    return sum(trial.state == "running" for trial in Trials("val_accuracy", events))
