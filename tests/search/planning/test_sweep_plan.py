"""The plan of a sweep from measurements: time, memory, trials that fit, money, and what cannot run."""

import json
from dataclasses import replace

import pytest

from ledger.events import DriverStarted, TrialEnded, TrialStarted
from ledger.settings import Settings
from ledger.trials import Trials
from search.display.tables.columns import make_console
from search.planning.measured_space import file_of, recall, save
from search.planning.packing import find_room
from search.planning.sweep_plan import pack_and_forecast, plan_sweep
from search.planning.view import describe_plan
from search.records.rows import to_json
from search.runner.machines.capacity import Demand
from search.runner.machines.cluster import Node
from search.tracking.run import summary
from tests.search.planning.made_up import FULL, PER_IMAGE, measure_made_up, prepare

GPU = {"demand": Demand(4, 1.0), "node": Node("1", "big", 8, 2, memory_mb=64000), "gpu_mb": 16000}


def make_plan(*overrides, price=None, problem=lambda target: "", **more):
    prepared = prepare("quick", *overrides, **more)
    return plan_sweep(prepared, measure_made_up(prepared, problem), find_room(prepared), price)


def show(plan):
    console = make_console()
    with console.capture() as capture:
        console.print(describe_plan(plan))
    return capture.get()


def test_a_plan_has_time_with_and_without_early_stopping():
    plan = make_plan()
    assert plan.seconds_low <= plan.seconds <= plan.seconds_high < plan.seconds_full
    assert plan.epochs_full == 16 * 9
    assert 16 * 9 * 0.5 / plan.slots < plan.seconds_full < 16 * 9 * 10 / plan.slots
    text = show(plan)
    assert "16, 2 at a time, 1 CPU each" in text
    assert "limited by its CPUs" in text


def test_a_long_fact_continues_below_itself_in_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = show(make_plan(**GPU)).splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith("memory of a trial"))
    assert lines[number][22:].startswith("up to ")
    assert lines[number + 1].startswith(" " * 22)
    assert lines[number + 1].strip()
    assert max(map(len, lines)) <= 80


def test_without_asha_there_is_one_time():
    plan = make_plan("search.scheduler={name: none}")
    assert plan.seconds == plan.seconds_full
    text = show(plan)
    assert "time with ASHA" not in text
    assert "time without" in text


def test_twice_the_trials_take_about_twice_the_time():
    one, two = (make_plan(f"search.trials={count}", "search.scheduler={name: none}") for count in (40, 80))
    assert two.seconds == pytest.approx(2 * one.seconds, rel=0.15)


def test_the_price_counts_every_gpu_that_trials_use():
    plan = make_plan(price=3.6, **GPU)
    assert plan.price == pytest.approx(3.6 * 2 * plan.seconds / 3600)
    assert plan.price_full > plan.price
    assert "price" in show(plan)


def test_trials_that_fit_on_a_gpu_follow_from_its_memory_and_its_cpus():
    plan = make_plan(**GPU)
    assert (plan.fits, plan.fits_by) == (4, "CPUs")
    small = make_plan(**GPU | {"gpu_mb": 3600})
    assert (small.fits, small.fits_by) == (2, "GPU memory")


def test_a_recipe_that_cannot_run_is_named_with_the_reason():
    plan = make_plan(problem=lambda target: "out of memory: 3 GB" if target.recipe.batch_size == 32 else "")
    assert "This cannot run here: batch_size=32 (out of memory: 3 GB)." in show(plan)


def test_json_has_documented_rows_with_whole_recipes():
    rows = json.loads(to_json(make_plan()))
    assert rows["recipes"][0]["kind"] == "base"
    assert rows["recipes"][0]["recipe"]["optimizer.name"] == "momentum"
    assert rows["price"] is None


def test_the_range_test_of_each_trial_counts():
    fixed, found = (
        make_plan(
            "search.scheduler={name: none}", "search.trials=3", "epochs=1", f"optimizer={{name: momentum, lr: {lr}}}"
        )
        for lr in ("0.1", "auto")
    )
    # Of three trials at two places, one place has two.
    one = 70 * 16 * PER_IMAGE * FULL
    assert one * 2**0.5 < found.seconds_full - fixed.seconds_full < 3 * one


def test_a_sweep_finds_the_measurements_of_the_same_space_and_data_whatever_its_search(tmp_path):
    prepared = prepare()
    save(measure_made_up(prepared), file_of(tmp_path, prepared))
    more = prepare("quick", "search.trials=20")
    (event,) = pack_and_forecast(more, Settings(), tmp_path, None)
    assert (event.trials, event.slots) == (20, 2)
    assert pack_and_forecast(prepare("quick", "epochs=10"), Settings(), tmp_path, None) == []
    assert pack_and_forecast(replace(prepared, dataset={"digest": "d2"}), Settings(), tmp_path, None) == []


def test_a_damaged_file_is_no_plan(tmp_path):
    prepared = prepare()
    file = file_of(tmp_path, prepared)
    save(measure_made_up(prepared, lambda target: "no" if target.kind == "base" else ""), file)
    assert [one.problem for one in recall(prepared, file).measurements].count("no") == 1
    file.write_text(file.read_text()[:-20])
    assert recall(prepared, file) is None


def test_the_run_of_the_sweep_has_the_plan_and_the_time_that_drivers_ran():
    prepared = prepare()
    event = plan_sweep(prepared, measure_made_up(prepared), find_room(prepared)).to_event()
    start = TrialStarted(trial=0, recipe=prepared.space.baselines()[0], params=None, origin="baseline", time=1)
    ends = [TrialEnded(trial=0, state="interrupted", time=110), TrialEnded(trial=0, state="completed", time=1030)]
    drivers = [DriverStarted(threads=1, time=time) for time in (10, 1000)]
    trials = Trials("val_accuracy", [event, drivers[0], start, ends[0], drivers[1], ends[1]])
    figures = {metric.key: metric.value for metric in summary(trials, 0)}
    assert figures["elapsed_seconds"] == 130
    assert figures["planned_seconds"] == event.seconds
    assert trials.interruptions == [(110, 1000)]
