import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.events import EpochReported, TrialEnded, TrialStarted, WarmStart
from ledger.file import Ledger
from ledger.trials import Trials
from search.core.controller import Controller
from spaces.load import load_space
from tests.made_events import make_event
from training.loop.epoch_report import Report
from training.recipe import Recipe

SPACE = load_space("quick", ["search.trials=9", "epochs=9"])


def play(controller, rng, steps, workers=3):
    """Call a controller as workers would: start, report, fail, diverge, in any order."""
    for _ in range(steps):
        running = [trial for trial in controller.trials if trial.state == "running"]
        if len(running) < workers and (rng.random() < 0.5 or not running):
            if controller.next_trial() is None and not running:
                return
            continue
        trial = rng.choice(running)
        fate = rng.random()
        if fate < 0.03:
            controller.end(trial.number, "diverged", "the loss became NaN")
        elif fate < 0.06:
            controller.end(trial.number, "failed", "x")
        else:
            controller.report(trial.number, make_report(trial.epoch + 1, rng.random()))


def make_report(epoch, score):
    return Report(epoch, metrics={}, score=score, standard_error=0.1, best_epoch=epoch, steps=[], time=0.0)


def train_in_full(controller, number, score):
    """Report the nine epochs of a trial, each with this score, and return the decisions."""
    return [controller.report(number, make_report(epoch, score)) for epoch in range(1, 10)]


def decisions(controller):
    return [
        event.model_dump(exclude={"time"})
        for event in controller.ledger.events
        if event.event in ("start", "resume", "end", "infeasible")
    ]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.floats(0, 1))
def test_continuing_from_a_ledger_that_was_cut_changes_no_later_decision(tmp_path_factory, seed, cut):
    folder = tmp_path_factory.mktemp("ledger")
    whole = Controller(SPACE, Ledger(folder / "whole.jsonl"), seed=seed)
    play(whole, random.Random(seed), 120)
    lines = (folder / "whole.jsonl").read_bytes().splitlines(keepends=True)
    kept = max(1, int(cut * len(lines)))
    (folder / "cut.jsonl").write_bytes(b"".join(lines[:kept]) + b'{"event":"torn')
    again = Controller(SPACE, Ledger(folder / "cut.jsonl"), seed=seed)
    # The same arrivals as before must lead to the same trials and the same ends.
    for position, event in enumerate(whole.ledger.events[kept - 1 :]):  # the first line is not an event
        kind, number = event.event, event.trial
        was_cut_off = position == 0  # directly after its report: the next driver first carries out the decision
        if kind == "start" and number not in again.trials.by_number:
            again.next_trial()
        elif kind == "report":
            again.report(number, make_report(event.epoch, event.score))
        elif kind == "end" and (event.state in ("diverged", "failed") or was_cut_off):
            again.end(number, event.state, event.reason)
    assert sorted(map(repr, decisions(again))) == sorted(map(repr, decisions(whole)))


def test_a_grid_ends_when_no_point_is_left_even_if_points_conflict_or_are_baselines(tmp_path):
    (tmp_path / "grid.yaml").write_text(
        "format: 1\n"
        "recipe: {epochs: 1, unfreeze: {level: {choice: [last, full]}}, lora: {rank: {choice: [0, 4]}}}\n"
        "search: {trials: 20, sampler: grid, scheduler: {name: none}}\n"
    )
    controller = Controller(load_space(tmp_path / "grid.yaml"), Ledger(tmp_path / "ledger.jsonl"))
    while (trial := controller.next_trial()) is not None:
        assert not controller.is_done
        controller.report(trial.number, make_report(1, 0.5))
    # One of the four points conflicts, and one is the baseline.
    assert [trial.origin for trial in controller.trials] == ["baseline"] + ["sampler"] * 2
    assert controller.is_done


def finish(controller):
    """Run a controller to its end, with one worker; returns the recipes of its trials."""
    while (trial := controller.next_trial()) is not None:
        controller.report(trial.number, make_report(1, random.Random(trial.number).random()))
    assert controller.is_done
    return [trial.recipe for trial in controller.trials]


SMALL = {  # the part of a recipe, and how many recipes it has beside the baseline
    "a choice": ("label_smoothing: {alpha: {choice: [0.0, 0.1]}}", 1),
    "whole numbers": ("batch_size: {int_uniform: [16, 20]}", 5),
    "inside an option": (
        "mixup: {choice: [{alpha: 0.0}, {alpha: {choice: [0.2, 0.4]}}]}, label_smoothing: {alpha: {choice: [0.0, 0.1]}}",
        5,
    ),
    "two points of one recipe": ("mixup: {choice: [{alpha: 0.0}, {alpha: {choice: [0.0, 0.4]}}]}", 1),
    "an interval of one value": ("label_smoothing: {alpha: {choice: [0.0, {uniform: [0.1, 0.1]}]}}", 1),
    "a conflict": ("unfreeze: {level: {choice: [last, full]}}, lora: {rank: {choice: [0, 4]}}", 2),
}


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        (name, one)
        for name in SMALL
        for one in ("tpe", "random", "grid")
        if (name, one) != ("an interval of one value", "grid")
    ],
)
def test_no_recipe_is_trained_twice_and_a_small_space_ends_the_sweep(tmp_path, name, sampler):
    part, others = SMALL[name]
    text = f"format: 1\nrecipe: {{epochs: 1, {part}}}\nsearch: {{trials: 40, sampler: {sampler}, scheduler: {{name: none}}}}\n"
    (tmp_path / "small.yaml").write_text(text)
    recipes = finish(Controller(load_space(tmp_path / "small.yaml"), Ledger(tmp_path / "ledger.jsonl"), seed=1))
    assert len({recipe.model_dump_json() for recipe in recipes}) == len(recipes)
    assert len(recipes) == 1 + others


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_an_option_without_parameters_is_trained_once_beside_an_interval(tmp_path, sampler):
    text = "{epochs: 1, mixup: {choice: [{alpha: 0.0}, {alpha: {uniform: [0.1, 1.0]}}]}}"
    search = f"{{trials: 30, sampler: {sampler}, scheduler: {{name: none}}}}"
    (tmp_path / "space.yaml").write_text(f"format: 1\nrecipe: {text}\nsearch: {search}\n")
    recipes = finish(Controller(load_space(tmp_path / "space.yaml"), Ledger(tmp_path / "ledger.jsonl")))
    assert len({recipe.model_dump_json() for recipe in recipes}) == len(recipes) == 30


def test_a_warm_start_that_is_a_baseline_is_not_trained_again(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    other = SPACE.baselines()[0].model_copy(update={"batch_size": 7})
    ledger.append(WarmStart(recipes=(SPACE.baselines()[1], other)))
    controller = Controller(SPACE, ledger)
    started = [controller.next_trial() for _ in range(5)]
    assert [trial.origin for trial in started] == ["baseline", "baseline", "baseline", "warm_start", "sampler"]
    assert started[3].recipe == other


def test_a_repeated_report_changes_nothing(tmp_path):
    controller = Controller(SPACE, Ledger(tmp_path / "ledger.jsonl"))
    trial = controller.propose()
    controller.report(trial.number, make_report(1, 0.5))
    count = len(controller.ledger.events)
    controller.report(trial.number, make_report(1, 0.9))
    assert len(controller.ledger.events) == count
    assert trial.score == 0.5


def test_the_baseline_comes_first_and_is_never_stopped(tmp_path):
    controller = Controller(SPACE, Ledger(tmp_path / "ledger.jsonl"))
    trials = [controller.propose() for _ in range(9)]
    assert [trial.origin for trial in trials] == ["baseline"] * 3 + ["sampler"] * 6
    rates = [trial.recipe.optimizer.lr for trial in trials[:3]]
    assert rates == pytest.approx([0.05, 0.05 / 3, 0.15])
    assert controller.propose() is None
    for trial in trials[3:]:
        train_in_full(controller, trial.number, 0.9)
    for trial in trials[:3]:
        assert train_in_full(controller, trial.number, 0.01) == ["continue"] * 9
        assert trial.state == "completed"


def test_a_trial_that_should_stop_before_a_crash_ends_on_resume(tmp_path):
    path = tmp_path / "ledger.jsonl"
    controller = Controller(SPACE, Ledger(path))
    for _ in range(9):
        controller.propose()
    while not any(trial.state == "stopped" for trial in controller.trials):
        for trial in controller.trials:
            if trial.state == "running":
                controller.report(trial.number, make_report(trial.epoch + 1, 0.9 - trial.number / 10))
    lines = path.read_bytes().splitlines(keepends=True)
    assert b'"end"' in lines[-1] or b'"stopped"' in b"".join(lines)
    last_end = max(i for i, line in enumerate(lines) if b'"state":"stopped"' in line)
    path.write_bytes(b"".join(lines[:last_end]))  # killed between the report and the end that follows from it
    again = Controller(SPACE, Ledger(path))
    again.take_over()
    stopped = next(trial for trial in controller.trials if trial.state == "stopped")
    assert again.trials.by_number[stopped.number].state == "stopped"


def test_only_completed_trials_can_be_the_best(tmp_path):
    controller = Controller(SPACE, Ledger(tmp_path / "ledger.jsonl"))
    first, second = controller.propose(), controller.propose()
    train_in_full(controller, first.number, 0.5)
    controller.report(second.number, make_report(1, 0.99))
    controller.end(second.number, "interrupted")
    assert controller.trials.best() is first
    assert controller.trials.ranked()[0] is first


def test_a_lower_loss_ranks_higher():
    trials = Trials("val_loss")
    for number, loss in enumerate([0.5, 0.2, 0.9]):
        trials.fold(TrialStarted(trial=number, recipe=Recipe(epochs=1), params={}, origin="sampler"))
        trials.fold(EpochReported(trial=number, **vars(make_report(1, loss))))
        trials.fold(TrialEnded(trial=number, state="completed"))
    assert [trial.number for trial in trials.ranked()] == [1, 0, 2]


def test_a_replication_runs_the_trials_in_the_ledger_wherever_it_was_cut(tmp_path):
    recipes = [SPACE.baselines()[0].model_copy(update={"seed": seed}).model_dump() for seed in (5, 6, 7)]
    listed = [{"label": "baseline", "recipe": recipe, "origin": "baseline"} for recipe in recipes]
    space = load_space("quick", ["search.trials=3", "search.scheduler={name: none}"])
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append(make_event({"event": "list", "trials": listed}))
    controller = Controller(space, Ledger(path))
    started = [controller.propose(), controller.propose()]
    assert train_in_full(controller, 0, 0.1) == ["continue"] * 9
    again = Controller(space, Ledger(path))
    again.take_over()
    going_on, new = again.next_trial(), again.next_trial()
    assert [trial.recipe.seed for trial in (*started, new)] == [5, 6, 7]
    assert going_on.number == 1
    assert again.next_trial() is None
    assert not again.is_done
    for number in (1, 2):
        train_in_full(again, number, 0.1)
    assert again.is_done


def test_a_driver_that_ends_interrupts_the_running_trials_and_accepts_no_more_events(tmp_path):
    controller = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))
    first, second = controller.next_trial(), controller.next_trial()
    controller.report(first.number, make_report(1, 0.5))
    controller.interrupt("the sweep was stopped")
    controller.interrupt("the sweep was stopped")
    count = len(controller.ledger.events)
    assert controller.report(first.number, make_report(2, 0.6)) == "stop"
    controller.lose(second.number, "its node is gone")
    controller.end(second.number, "failed", "the worker returned before the last epoch")
    assert controller.next_trial() is None
    assert len(controller.ledger.events) == count
    assert [trial.state for trial in controller.trials] == ["interrupted", "interrupted"]
    again = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))
    assert again.next_trial().number == first.number


def test_after_a_full_disk_no_trial_is_running(tmp_path, monkeypatch):
    controller = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))
    controller.next_trial()

    def refuse(event):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(controller.ledger, "append", refuse)
    controller.interrupt("the sweep was stopped")
    assert [trial.state for trial in controller.trials] == ["interrupted"]


def test_after_a_move_only_recipes_that_the_machines_support_are_started(tmp_path):
    space = load_space("quick", ["search.trials=40", "search.sampler=random"])
    available = space.without("precision.mode", ["bf16-mixed"])
    controller = Controller(space, Ledger(tmp_path / "ledger.jsonl"), available=available)
    while (trial := controller.next_trial()) is not None:
        assert trial.recipe.precision.mode == "32-true"
        controller.end(trial.number, "failed", "x")
    reasons = {event.reason for event in controller.ledger.events if event.event == "infeasible"}
    assert reasons == {"these machines do not support the recipe"}
    again = Controller(space, Ledger(tmp_path / "ledger.jsonl"))
    assert len(again.trials) == 40


def test_a_trial_that_loses_its_machines_goes_on_and_one_that_crashes_does_not(tmp_path):
    controller = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))
    trial = controller.next_trial()
    for _ in range(20):
        controller.lose(trial.number, "its node has died", "preemption")
        assert controller.next_trial() is trial
    for _ in range(4):
        assert trial.state != "failed"
        controller.lose(trial.number, "segmentation fault")
    assert (trial.state, trial.reason) == ("failed", "4 of its workers died, the last because: segmentation fault")
    again = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl")).trials.by_number[trial.number]
    assert (again.crashes, again.preemptions, again.state) == (4, 20, "failed")


def test_a_ledger_of_an_earlier_version_counts_each_recipe_once_at_the_rungs(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    recipe, other = (SPACE.baselines()[0].model_copy(update={"batch_size": size}) for size in (7, 9))
    for number, trained in enumerate((recipe, other, recipe, recipe)):
        ledger.append(TrialStarted(trial=number, recipe=trained, params=None, origin="sampler"))
        ledger.append(EpochReported(trial=number, epoch=3, score=0.5, standard_error=0.1, best_epoch=3))
    asha = Controller(SPACE, Ledger(tmp_path / "ledger.jsonl")).asha
    assert {len(scores) for scores in asha._scores.values()} == {2}


PROBED = ["linear_probe={c: {choice: [off, auto]}}", "backbone.weights=letters", "search.baseline.optimizer.lr=0.1"]


def test_a_space_with_the_linear_probe_begins_with_it_and_has_one_baseline(tmp_path):
    controller = Controller(
        load_space("quick", ["search.trials=9", "epochs=9", *PROBED]), Ledger(tmp_path / "one.jsonl")
    )
    probe, baseline, drawn = (controller.next_trial() for _ in range(3))
    assert [trial.origin for trial in (probe, baseline, drawn)] == ["probe", "baseline", "sampler"]
    assert (probe.recipe.unfreeze.level, probe.recipe.linear_probe.trains, probe.epochs) == ("last", False, 1)
    assert baseline.recipe.optimizer.lr == 0.1
    assert Controller(SPACE, Ledger(tmp_path / "two.jsonl")).next_trial().origin == "baseline"


def test_nothing_starts_that_would_not_end_in_time(tmp_path):
    controller, left = Controller(SPACE, Ledger(tmp_path / "ledger.jsonl")), [1000.0]
    controller.seconds_left = lambda: left[0]
    for number in range(3):
        controller.next_trial()
        for epoch in (1, 2):
            controller.report(number, make_report(epoch, 0.5), worker_seconds=10.0 * epoch)
    assert controller.next_trial().origin == "sampler"
    left[0] = 0.5
    assert controller.next_trial() is None
    assert controller.is_out_of_time
    resumed = Controller(SPACE, Ledger(tmp_path / "ledger.jsonl", controller.ledger.events))
    assert resumed.next_trial().origin == "sampler"  # another driver has its own time


def test_what_would_not_end_in_time_is_left_for_a_resume(tmp_path):
    fixed = ["mixup={alpha: 0.0}", "optimizer.lr=0.01", "label_smoothing.alpha=0.0", "unfreeze.level=full", "epochs=2"]
    fixed += [
        "augmentation={policy: none}",
        "precision.mode=32-true",
        "search.scheduler={name: none}",
        "search.trials=9",
    ]
    space = load_space("quick", ["batch_size={choice: [8, 16, 32]}", "search.sampler=grid", *fixed])
    controller = Controller(space, Ledger(tmp_path / "ledger.jsonl"))
    trained = controller.next_trial()
    for epoch in (1, 2):
        controller.report(0, make_report(epoch, 0.5), worker_seconds=10.0 * epoch)
    controller.seconds_left = lambda: 5.0
    assert controller.next_trial() is None
    assert controller.is_out_of_time
    assert not controller.is_done
    resumed = Controller(space, Ledger(tmp_path / "ledger.jsonl", controller.ledger.events))
    assert {resumed.next_trial().recipe.batch_size for _ in range(2)} == {8, 16, 32} - {trained.recipe.batch_size}
    assert resumed.next_trial() is None
