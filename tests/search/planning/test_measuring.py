"""Measuring a space takes a tenth of the sweep's time at most, and shows how far it is."""

import io
from functools import partial
from types import SimpleNamespace

import pytest
import ray
from rich.console import Console

from search.display.phases import Phases
from search.planning import measured_space
from search.planning.cost_model import CostTarget, draw_recipes
from search.planning.measured_space import limit_seconds, measure_space
from tests.search.planning.made_up import cost_of, prepare
from training.recipe import read_recipe


@pytest.fixture
def machine(monkeypatch):
    """A machine on which each measurement takes `seconds`, and two run at the same time."""
    machine = SimpleNamespace(now=0.0, seconds=25.0, most=0, running=0)
    costs = []

    def start(recipe, level, *_):
        machine.running += 1
        machine.most = max(machine.most, machine.running)
        costs.append(cost_of(CostTarget(read_recipe(recipe), level)))
        return len(costs) - 1

    def wait(answers):
        machine.now += machine.seconds / 2
        machine.running -= 1
        return answers[:1], answers[1:]

    task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))
    monkeypatch.setattr(ray, "remote", lambda **_: lambda function: task)
    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", lambda answer: (costs[answer], "", 0.0))
    monkeypatch.setattr(measured_space, "draw_recipes", partial(draw_recipes, count=60))
    monkeypatch.setattr(measured_space.time, "monotonic", lambda: machine.now)
    return machine


def run(plan, terminal=False):
    console = Console(file=io.StringIO(), force_terminal=terminal, force_interactive=False)
    phases = Phases(console)
    phases.began = 0.0
    return measure_space(plan, True, phases), phases


def test_measuring_ends_after_a_minute_or_a_tenth_of_the_sweep_and_names_what_is_left_out(machine):
    plan = prepare("full", "search.trials=8")
    found, _ = run(plan)
    limit = limit_seconds(found.measurements[0].cost, found.measurements[0].target.recipe.epochs, plan)
    assert 60 <= limit < 70
    assert machine.now <= limit + 2 * machine.seconds  # those that run are waited for, and the heaviest is measured
    assert found.measurements[0].target.kind == "base"
    assert not [one for one in found.measurements if one.target.kind == "check"]
    assert {"backbone.name", "precision.mode"} & set(found.left_out)


def test_a_long_sweep_is_measured_completely_with_as_many_at_the_same_time_as_its_trials(machine):
    machine.seconds = 2.0
    found, phases = run(prepare("full", "search.trials=500"))
    assert len([one for one in found.measurements if one.target.kind == "check"]) == 3
    assert machine.most == 2
    assert phases.phases[0][0].endswith(" recipes: 17 done")
    lines = [line.strip() for line in phases.console.file.getvalue().splitlines() if "images per second" in line]
    assert lines[0].startswith("1/17 the baseline: ")
    assert "unfreeze.level=last" in [line.split(": ")[0].split()[-1] for line in lines]
    assert len(lines) == len(found.measurements)
