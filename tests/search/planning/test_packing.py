"""Several trials on a GPU or on a machine: never more than its memory holds."""

from dataclasses import replace

import pytest

from ledger.file import Ledger
from ledger.settings import Settings
from search.core.controller import Controller
from search.planning import make
from search.planning.packing import Needs, Room, choose_demand, describe_fit, fit_trials, pack_trials
from search.runner.machines.capacity import MARGIN, Capacity, Demand
from search.runner.machines.cluster import Node
from spaces.load import load_space
from tests.search.planning.made_up import measure_made_up, prepare
from training.errors import UserError
from training.process.resources import CONTEXT_MB

AUTO = Settings(cpus_per_trial="auto")
AUTO_GPU = Settings(gpus_per_trial="auto")


@pytest.mark.parametrize("gpu_mb", [8000, 16000, 24000, 80000])
@pytest.mark.parametrize("needs", [Needs(900, 700), Needs(2000, 3000), Needs(4000, 7000), Needs(1500, 15000)])
@pytest.mark.parametrize("cpus", [2, 7, 16, 64])
def test_packed_trials_together_never_exceed_a_gpu_or_its_machine(gpu_mb, needs, cpus):
    room = Room(cpus, 64000, gpu_mb)
    fit = fit_trials(room, needs)
    demand = choose_demand(Demand(1, 1.0), room, needs, fit)
    count = Demand(demand.cpus, demand.gpus, None, demand.memory_mb).slots_on(Node("1", "a", cpus, 1, "", 64000))
    assert count == max(1, fit.count)
    assert count * demand.gpus <= 1
    assert count * demand.cpus <= cpus
    assert count * demand.memory_mb <= 64000
    if fit.count:
        assert demand.gpus * gpu_mb - CONTEXT_MB >= needs.gpu_mb  # what torch may fill is enough
        assert count * (needs.gpu_mb + CONTEXT_MB) <= gpu_mb


@pytest.mark.parametrize(("ram", "count", "cpus"), [(64000, 8, 1), (8000, 3, 2), (4000, 1, 8), (2000, 0, 8)])
def test_a_machine_without_gpus_is_divided_by_memory_and_cpus(ram, count, cpus):
    room, needs = Room(8, ram), Needs(2200)
    fit = fit_trials(room, needs)
    demand = choose_demand(Demand(1, 0), room, needs, fit)
    assert (fit.count, demand.cpus, demand.gpus) == (count, cpus, 0)
    assert demand.slots_on(Node("1", "a", 8, 0, "", ram)) == max(1, count)


def test_the_sentence_says_how_many_and_why():
    room, needs = Room(4, 64000, 16000), Needs(2000, 6000)
    assert describe_fit(room, needs, fit_trials(room, needs)) == (
        "Packing: 2 trials on each GPU, limited by its GPU memory (enough CPUs for 4, memory for 29); a trial needs up to "
        "6,000 of its 16,000 MB."
    )
    assert "although a trial needs up to 3,000 of its 2,000 MB" in describe_fit(
        Room(4, 2000), Needs(3000), fit_trials(Room(4, 2000), Needs(3000))
    )


def test_a_sweep_is_packed_by_what_was_measured_and_says_so_in_one_line(tmp_path, monkeypatch):
    lines, plan = [], prepare(node=Node("1", "one", 8, 0, memory_mb=3000))
    plan.capacity._say = lines.append
    measured = []
    monkeypatch.setattr(make, "measure", lambda *given: measured.append(1) or measure_made_up(plan))
    (event,) = make.pack_and_forecast(plan, AUTO, tmp_path, None)
    need = max(one.cost.ram_mb for one in measure_made_up(plan).measurements)
    assert plan.capacity.slots == event.slots == int(3000 // (MARGIN * need))
    assert plan.capacity.demand.memory_mb == pytest.approx(MARGIN * need)
    assert len(lines) == len(measured) == 1
    assert "limited by its memory" in lines[0]


def test_packing_needs_a_gpu_or_none(tmp_path):
    with pytest.raises(UserError, match="--gpus-per-trial=auto: there is no GPU here"):
        make.pack_and_forecast(prepare(), AUTO_GPU, tmp_path, None)
    on_gpu = prepare(demand=Demand(4, 1.0), node=Node("1", "big", 8, 2, memory_mb=64000), gpu_mb=16000)
    with pytest.raises(UserError, match="--cpus-per-trial=auto: with GPUs"):
        make.pack_and_forecast(on_gpu, AUTO, tmp_path, None)
    pack_trials(on_gpu, measure_made_up(on_gpu).needs)
    assert on_gpu.capacity.slots == 8  # four CPUs for each GPU, so four trials on each
    assert on_gpu.capacity.demand.cpus == 1


@pytest.fixture
def trial(tmp_path):
    controller = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))
    return controller.next_trial()


def test_a_share_that_was_too_small_doubles_until_the_trial_has_everything(trial):
    capacity = Capacity(Demand(2, 0.3333, None, 2000.0), [Node("1", "a", 8, 1, "", 5000.0)])
    seen = []
    while capacity.can_enlarge(trial):
        seen.append((capacity.demand_of(trial).gpus, capacity.demand_of(trial).memory_mb))
        trial.enlargements += 1
    last = capacity.demand_of(trial)
    assert seen == [(0.3333, 2000), (0.6666, 4000)]
    assert (last.gpus, last.memory_mb) == (1.0, 5000)


def test_trials_that_are_not_packed_keep_their_demand(trial):
    capacity = Capacity(Demand(2, 0.5), [Node("1", "a", 8, 1)])
    trial.enlargements = 3
    assert not capacity.can_enlarge(trial)
    assert capacity.demand_of(trial) is capacity.demand
    capacity.learn(10_000)
    assert capacity.demand == Demand(2, 0.5)


def test_the_first_trials_correct_what_was_measured():
    lines = []
    capacity = Capacity(Demand(1, 0, None, 1000.0), [Node("1", "a", 8, 0, "", 5000.0)], say=lines.append)
    assert capacity.slots == 5
    capacity.learn(900)
    capacity.learn(1500)
    assert capacity.slots == 3
    assert lines == ["A trial needed 1,500 MB, so later trials get 1,650 MB each."]
    capacity.learn(7000)
    assert capacity.slots == 1  # a machine keeps room for one trial


def test_a_demand_counts_the_memory_of_the_machine_for_ray():
    assert Demand(1, 0).resources == {"cpu": 1, "gpu": 0}
    packed = replace(Demand(1, 0), memory_mb=2.5)
    assert packed.resources == {"cpu": 1, "gpu": 0, "memory": int(2.5 * 2**20)}
