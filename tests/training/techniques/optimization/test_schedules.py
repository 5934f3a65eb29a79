from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.scheduler import CosineLRScheduler
from torch.optim import lr_scheduler as reference

from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.techniques.optimization.schedules import CosineRestarts

LR = 0.4


def make(**fields):
    return Recipe.kinds("schedule")[fields["name"]].model_validate(fields)


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)


def rates(schedule, optimizer, steps):
    """Return the rate of each step, and the rate after the last step."""
    found = []
    for _ in range(steps + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def ours(epochs, steps_per_epoch, **fields):
    over = optimizer()
    return rates(make(**fields).build(over, [steps_per_epoch] * epochs), over, epochs * steps_per_epoch)


def test_constant_is_constant():
    assert set(ours(3, 4, name="constant")) == {LR}


def test_cosine_equals_torchs():
    over = optimizer()
    assert ours(5, 8, name="cosine") == pytest.approx(rates(reference.CosineAnnealingLR(over, 40), over, 40), abs=1e-12)


def test_cosine_with_warm_up_equals_torchs_in_sequence():
    over = optimizer()
    rise = reference.LinearLR(over, start_factor=1e-3, total_iters=8)
    sequence = reference.SequentialLR(over, [rise, reference.CosineAnnealingLR(over, 32)], milestones=[8])
    found = ours(5, 8, name="cosine", warmup_epochs=1.0, start_factor=1e-3)
    assert found == pytest.approx(rates(sequence, over, 40), abs=1e-12)
    assert found[0] == pytest.approx(LR * 1e-3)
    assert found[8] == LR


def test_cosine_with_warm_up_equals_timms():
    over = optimizer()
    theirs = CosineLRScheduler(over, 32, warmup_t=8, warmup_lr_init=LR * 0.01, warmup_prefix=True, t_in_epochs=False)
    expected = []
    for step in range(40):
        theirs.step_update(step)
        expected.append(over.param_groups[0]["lr"])
    assert ours(5, 8, name="cosine", warmup_epochs=1.0, start_factor=0.01)[:40] == pytest.approx(expected, abs=1e-12)


def test_linear_equals_torchs():
    over = optimizer()
    expected = rates(reference.LinearLR(over, start_factor=1.0, end_factor=0.1, total_iters=40), over, 40)
    assert ours(5, 8, name="linear", final_factor=0.1) == pytest.approx(expected, abs=1e-12)


def test_a_trapezoid_equals_torchs_three_pieces_in_sequence():
    over = optimizer()
    rise = reference.LinearLR(over, start_factor=1e-3, total_iters=8)
    fall = reference.LinearLR(over, start_factor=1.0, end_factor=0.05, total_iters=12)
    flat = reference.ConstantLR(over, factor=1.0)
    sequence = reference.SequentialLR(over, [rise, flat, fall], milestones=[8, 28])
    fields = {"warmup_epochs": 1.0, "start_factor": 1e-3, "cooldown_fraction": 0.3, "final_factor": 0.05}
    assert ours(5, 8, name="trapezoid", **fields) == pytest.approx(rates(sequence, over, 40), abs=1e-12)


@pytest.mark.parametrize("name", ["cosine", "cosine_restarts"])
def test_a_cosine_can_end_above_zero(name):
    over = optimizer()
    found, steps = ours(4, 5, name=name, final_factor=0.25), 20 if name == "cosine" else 10
    expected = rates(reference.CosineAnnealingLR(over, steps, eta_min=LR * 0.25), over, steps)
    assert found[: steps - 1] == pytest.approx(expected[: steps - 1], abs=1e-12)
    assert found[-1] == pytest.approx(LR * 0.25)


def test_a_warm_up_and_a_cool_down_that_overlap_are_refused():
    with pytest.raises(UserError, match=r"warmup_epochs=8 and schedule\.cooldown_fraction=0\.4 overlap in epochs=10"):
        read_recipe({"schedule": {"name": "trapezoid", "warmup_epochs": 8.0, "cooldown_fraction": 0.4}})


def test_restarts_of_equal_length_equal_torchs_warm_restarts():
    over = optimizer()
    expected = rates(reference.CosineAnnealingWarmRestarts(over, 10), over, 30)
    assert ours(3, 10, name="cosine_restarts", cycles=3)[:-1] == pytest.approx(expected[:-1], abs=1e-12)


def test_restarts_of_growing_length_equal_torchs_warm_restarts():
    over = optimizer()
    expected = rates(reference.CosineAnnealingWarmRestarts(over, 4, T_mult=2), over, 28)
    found = ours(7, 4, name="cosine_restarts", cycles=3, cycle_factor=2)
    assert found[:-1] == pytest.approx(expected[:-1], abs=1e-12)


def test_restarts_follow_the_warm_up():
    found = ours(5, 4, name="cosine_restarts", cycles=2, warmup_epochs=1.0, start_factor=0.1)
    assert found[:4] == pytest.approx([LR * share for share in (0.1, 0.325, 0.55, 0.775)])
    assert found[4:] == pytest.approx(ours(4, 4, name="cosine_restarts", cycles=2))


@settings(max_examples=60, deadline=None)
@given(
    cycles=st.integers(2, 6),
    cycle_factor=st.integers(1, 3),
    epochs=st.integers(1, 12),
    per_epoch=st.integers(1, 40),
    warmup=st.floats(0, 3),
)
def test_restarts_always_end_at_zero_and_climb_only_at_restarts(cycles, cycle_factor, epochs, per_epoch, warmup):
    schedule = CosineRestarts(cycles=cycles, cycle_factor=cycle_factor, warmup_epochs=min(warmup, epochs / 2))
    try:
        curve = schedule.curve([per_epoch] * epochs)
    except UserError:
        return
    total = epochs * per_epoch
    factors = [curve(step) for step in range(total + 1)]
    first = factors.index(1.0)
    climbs = [step for step in range(first, total) if factors[step + 1] > factors[step]]
    assert factors[-1] == 0.0
    assert len(climbs) <= cycles - 1
    assert [step for step in climbs if factors[step + 1] != 1.0] == []
    assert factors.count(1.0) == cycles
    assert [factor for factor in factors if not (0 <= factor <= 1)] == []


@settings(max_examples=60, deadline=None)
@given(epochs=st.integers(1, 12), per_epoch=st.integers(1, 40), warmup=st.floats(0, 3))
def test_cosine_ends_at_zero_and_never_climbs_again(epochs, per_epoch, warmup):
    curve = make(name="cosine", warmup_epochs=min(warmup, epochs / 2)).curve([per_epoch] * epochs)
    total = epochs * per_epoch
    factors = [curve(step) for step in range(total + 50)]
    top = factors.index(1.0)
    assert factors[:top] == sorted(factors[:top])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    assert set(factors[total:]) == {0.0}


def test_a_short_warm_up_is_at_least_a_step():
    assert ours(4, 3, name="constant", warmup_epochs=0.1)[:2] == pytest.approx([LR * 1e-4, LR])


def test_too_many_cycles_are_refused_with_the_way_out():
    with pytest.raises(UserError, match=r"cycles=9 with cycle_factor=1 does not fit into 8 optimizer steps: lower"):
        ours(2, 4, name="cosine_restarts", cycles=9)


def test_the_fit_steps_the_schedule_once_per_optimizer_step(fit):
    # 60 images in batches of 16 are 4 forward passes, and with 3 of them a step, 2 steps an epoch.
    run = fit(
        data={"name": "digits", "train_size": 60},
        epochs=3,
        accumulation={"batches": 3},
        schedule={"name": "cosine", "warmup_epochs": 1.0, "start_factor": 0.1},
        optimizer={"name": "sgd", "lr": LR},
    )
    points = [(step, rate) for report in run.outcome.reports for step, rate, _ in report.steps]
    expected = [0.1, 0.55, *((1 + math.cos(math.pi * step / 4)) / 2 for step in range(4))]
    assert [step for step, _ in points] == [1, 2, 3, 4, 5, 6]
    assert [rate for _, rate in points] == pytest.approx([LR * factor for factor in expected])
    assert run.metrics[-1]["lr"] == 0.0


SMALL = {"data": {"name": "digits", "train_size": 90, "epoch_size": 60}, "optimizer": {"name": "sgd", "lr": LR}}


def test_under_scheduled_accumulation_the_schedule_equals_torchs_over_all_steps(fit):
    # 60 of 90 images an epoch in batches of 16 are 4 forward passes: 4, 4, 2 and 1 steps.
    run = fit(
        **SMALL,
        epochs=4,
        accumulation={"schedule": [[2, 3], [3, 4]]},
        schedule={"name": "cosine", "warmup_epochs": 2.5, "start_factor": 0.1},
    )
    over = optimizer()
    rise = reference.LinearLR(over, start_factor=0.1, total_iters=9)  # two epochs and half of the third
    sequence = reference.SequentialLR(over, [rise, reference.CosineAnnealingLR(over, 2)], milestones=[9])
    points = [(step, rate) for report in run.outcome.reports for step, rate, _ in report.steps]
    assert [step for step, _ in points] == list(range(1, 12))
    expected = rates(sequence, over, 11)
    assert [rate for _, rate in points] == pytest.approx(expected[:-1], abs=1e-12)
    assert [m["lr"] for m in run.metrics] == pytest.approx([expected[step] for step in (4, 8, 10, 11)], abs=1e-12)


def test_restarts_under_scheduled_accumulation_end_at_the_minimum(fit):
    run = fit(
        **SMALL,
        epochs=4,
        accumulation={"schedule": [[0, 4], [1, 1]]},
        schedule={"name": "cosine_restarts", "cycles": 2},
    )
    rates_found = [rate for report in run.outcome.reports for _, rate, _ in report.steps]
    assert len(rates_found) == 1 + 3 * 4
    assert rates_found.count(LR) == 2
    assert run.metrics[-1]["lr"] == 0.0


def test_step_points_are_at_most_200(fit):
    run = fit(data={"name": "digits", "train_size": 205}, batch_size=2, epochs=3, unfreeze={"level": "last"})
    counts = [len(report.steps) for report in run.outcome.reports]
    assert 100 < sum(counts) <= 200
    steps = [step for report in run.outcome.reports for step, _, _ in report.steps]
    assert steps == sorted(set(steps))
    losses = [loss for report in run.outcome.reports for _, _, loss in report.steps]
    assert [loss for loss in losses if not math.isfinite(loss)] == []
