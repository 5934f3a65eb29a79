"""The planned steps and rates are those that a training logs."""

import pytest

from training.errors import UserError
from training.rate_plan import plan_rates
from training.train import train


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": {"name": "cosine", "warmup_epochs": 1.0}, "head_lr": {"factor": 10.0}},
        {"accumulation": {"schedule": [[2, 3]]}, "lr_scaling": {"rule": "linear"}},
        {"averaging": {"name": "swa", "start": 0.5, "lr_factor": 0.3, "annealing_epochs": 1.0}},
    ],
    ids=["warm-up and head rate", "accumulation and scaling", "averaging"],
)
def test_a_training_logs_the_planned_rate_of_each_step(tiny_recipe, tmp_path, fields):
    recipe = tiny_recipe(epochs=4, **fields)
    plan = plan_rates(recipe)
    outcome = train(recipe, tmp_path)
    logged = {step: lr for report in outcome.reports for step, lr, _ in report.steps}
    assert len(logged) == sum(plan.epoch_steps)
    assert [logged[step] for step in sorted(logged)] == pytest.approx(list(plan.groups[0].rates))


def test_each_group_has_its_rate_and_its_first_and_last_parameter(tiny_recipe):
    decayed = {"name": "momentum", "lr": 0.05, "weight_decay": 0.1}
    plan = plan_rates(tiny_recipe(head_lr={"factor": 10.0}, no_decay={"enabled": True}, optimizer=decayed))
    head, rest = plan.groups
    assert (head.first, head.last, head.numbers) == ("fc.weight", "fc.bias", 970)
    assert rest.first == "conv1.0.weight"
    assert head.rates == pytest.approx([10 * rate for rate in rest.rates])
    assert (plan.epoch_images, plan.epoch_steps, plan.step_images) == (64, (4, 4), (16, 16))


def test_a_plan_needs_no_weights_and_no_gpu(tiny_recipe):
    backbone = {"name": "resnet18.a1_in1k", "weights": "pretrained"}
    size = {"image_size": 32}
    recipe = tiny_recipe(backbone=backbone, preprocessing=size, precision={"mode": "16-mixed"})
    assert plan_rates(recipe).groups[0].last == "fc.bias"


def test_rates_that_training_finds_are_relative_and_noted(tiny_recipe):
    plan = plan_rates(tiny_recipe(optimizer={"name": "momentum", "lr": "auto"}))
    assert max(plan.groups[0].rates) == 1
    assert plan.notes == ("optimizer.lr=auto is found in training: the rates below are multiples of it.",)


def test_a_batch_size_that_a_gpu_finds_is_refused(tiny_recipe):
    with pytest.raises(UserError, match="batch_size=auto"):
        plan_rates(tiny_recipe(batch_size="auto"))
