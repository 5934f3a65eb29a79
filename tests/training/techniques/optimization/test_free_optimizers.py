"""Optimizers without a schedule or a rate: their steps are those of the papers, and the average is what is kept."""

from __future__ import annotations

import pytest
import torch

from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.errors import UserError
from training.evaluate import predict_part, restore_model
from training.recipe import read_recipe

TARGET = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)
SCALE = torch.tensor([1.0, 4.0, 0.2], dtype=torch.float64)


def gradient(x):
    return SCALE * (x - TARGET)


def step(name, count, **fields):
    """Minimise a quadratic function, and return the optimizer and the weights."""
    weight = torch.nn.Parameter(torch.tensor([0.5, 0.5, -2.0], dtype=torch.float64))
    optimizer = read_recipe({"optimizer": {"name": name, **fields}}).optimizer.build([weight])
    for _ in range(count):
        weight.grad = gradient(weight.detach())
        optimizer.step()
    return optimizer, weight


def test_schedule_free_takes_the_steps_of_its_paper():
    lr, beta1, beta2, decay, count = 0.1, 0.8, 0.95, 0.05, 9
    optimizer, weight = step("schedule_free", count, lr=lr, beta1=beta1, beta2=beta2, weight_decay=decay)
    x = z = torch.tensor([0.5, 0.5, -2.0], dtype=torch.float64)
    squares = torch.zeros(3, dtype=torch.float64)
    for t in range(1, count + 1):  # Defazio et al. 2024, algorithm 1
        y = (1 - beta1) * z + beta1 * x
        squares = beta2 * squares + (1 - beta2) * gradient(y) ** 2
        z = z - lr * (gradient(y) / ((squares / (1 - beta2**t)).sqrt() + 1e-8) + decay * y)
        x = (1 - 1 / t) * x + z / t
    torch.testing.assert_close(weight.detach(), (1 - beta1) * z + beta1 * x)
    optimizer.eval()
    torch.testing.assert_close(weight.detach(), x)


def test_prodigy_takes_the_steps_of_its_paper():
    lr, beta1, beta2, count = 1.0, 0.8, 0.95, 60
    optimizer, weight = step("prodigy", count, lr=lr, beta1=beta1, beta2=beta2)
    start = x = torch.tensor([0.5, 0.5, -2.0], dtype=torch.float64)
    mean = squares = s = torch.zeros(3, dtype=torch.float64)
    d, r, root = 1e-6, 0.0, beta2**0.5
    for _ in range(count):  # Mishchenko & Defazio 2024, algorithm 4
        g = gradient(x)
        mean = beta1 * mean + (1 - beta1) * d * g
        squares = beta2 * squares + (1 - beta2) * d**2 * g**2
        r = root * r + (1 - root) * lr * d**2 * float(g @ (start - x))
        s = root * s + (1 - root) * lr * d**2 * g
        x = x - lr * d * mean / (squares.sqrt() + d * 1e-8)
        d = max(d, r / float(s.abs().sum()))
    assert d > 0.1  # from a millionth
    assert optimizer.param_groups[0]["d"] == pytest.approx(d, rel=1e-4)
    torch.testing.assert_close(weight.detach(), x, rtol=1e-4, atol=1e-4)


def test_soap_takes_the_steps_of_its_paper():
    lr, beta1, beta2, decay, count = 0.1, 0.8, 0.9, 0.05, 9
    fields = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": decay, "refresh_steps": 2}
    target = torch.tensor([[3.0, -1.0], [0.5, 2.0], [1.0, -4.0]], dtype=torch.float64)
    scale = torch.tensor([[1.0, 4.0], [0.2, 2.0], [3.0, 0.5]], dtype=torch.float64)
    weight = torch.nn.Parameter(torch.tensor([[0.5, 0.5], [-2.0, 1.0], [0.0, 1.0]], dtype=torch.float64))
    optimizer = read_recipe({"optimizer": {"name": "soap", **fields}}).optimizer.build([weight])
    x = weight.detach().clone()
    for _ in range(count + 1):  # the first step only measures the bases
        weight.grad = scale * (weight.detach() - target)
        optimizer.step()
    g = scale * (x - target)
    left, right = (1 - beta2) * g @ g.T, (1 - beta2) * g.T @ g
    q_left, q_right = (torch.linalg.eigh(side)[1].flip(1) for side in (left, right))
    mean = squares = torch.zeros(3, 2, dtype=torch.float64)
    for t in range(1, count + 1):  # Vyas et al. 2025, algorithms 3 and 4
        g = scale * (x - target)
        mean = beta1 * mean + (1 - beta1) * g
        squares = beta2 * squares + (1 - beta2) * (q_left.T @ g @ q_right) ** 2
        rotated = (q_left.T @ mean @ q_right) / (1 - beta1**t) / ((squares / (1 - beta2**t)).sqrt() + 1e-8)
        x = (x - lr * q_left @ rotated @ q_right.T) * (1 - lr * decay)
        left = beta2 * left + (1 - beta2) * g @ g.T
        right = beta2 * right + (1 - beta2) * g.T @ g
        if t % 2 == 0:
            q_left, q_right = torch.linalg.qr(left @ q_left)[0], torch.linalg.qr(right @ q_right)[0]
    torch.testing.assert_close(weight.detach(), x, rtol=1e-4, atol=1e-4)


ONE_STEP = {"data": {"name": "digits", "train_size": 16}, "backbone": {"name": "test_resnet", "weights": "letters"}}


def test_with_schedule_free_the_mean_of_the_steps_is_scored_and_kept_with_its_own_statistics(
    fit, load_weights, tmp_path
):
    fields = {**ONE_STEP, "optimizer": {"name": "schedule_free", "lr": 0.01}, "epochs": 2}
    fit(folder=tmp_path, **fields, on_report=lambda report: False)
    read = lambda: torch.load(tmp_path / "last.ckpt", weights_only=True)["optimizer_states"][0]["state"]  # noqa: E731
    first = [state["z"] for state in read().values()]
    run = fit(folder=tmp_path, **fields)
    second = [state["z"] for state in read().values()]
    weights = load_weights(tmp_path)
    kept = [value for name, value in weights.items() if not ("running" in name or "tracked" in name)]
    means = {value.shape: [] for value in kept}
    for one, other in zip(first, second, strict=True):
        means[one.shape].append((one + other) / 2)
    for value in kept:  # the order of the optimizer's state may differ from that of the model
        assert min(float((value - mean).abs().max()) for mean in means[value.shape]) < 1e-6
    recipe = run.outcome.recipe
    data = load_data(recipe.data)
    model = restore_model(recipe, weights, 10)
    logits, labels = predict_part(model, data.val, recipe)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    assert run.metrics[-1]["val_loss"] == pytest.approx(float(loss), rel=1e-4)
    images = [images for images, _ in make_eval_loader(data.train, recipe, workers=0)]
    torch.optim.swa_utils.update_bn(images, model)
    assert len(images) == 1
    for name, value in model.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-4, msg=name)


def test_prodigy_learns_at_a_rate_that_nobody_chose(fit):
    fields = {"data": {"name": "digits", "train_size": 200}, "backbone": ONE_STEP["backbone"], "epochs": 6}
    run = fit(**fields, optimizer={"name": "prodigy"}, schedule={"name": "cosine"})
    assert run.outcome.reports[-1].score > 0.85


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimizer": {"name": "schedule_free"}, "schedule": {"name": "cosine"}}, "set schedule.name=constant"),
        ({"optimizer": {"name": "schedule_free"}, "averaging": {"name": "ema"}}, "averages the weights itself"),
        ({"optimizer": {"name": "prodigy", "lr": "auto"}}, "so optimizer.lr=auto cannot"),
        ({"optimizer": {"name": "prodigy"}, "layer_decay": {"factor": 0.5}}, "layer_decay.factor would do nothing"),
        ({"optimizer": {"name": "prodigy"}, "head_lr": {"factor": 2.0}}, "head_lr.factor would do nothing"),
        (
            {"optimizer": {"name": "prodigy"}, "unfreeze": {"level": "last"}, "lora": {"rank": 2, "b_rate": 2.0}},
            "lora.b_rate would do nothing",
        ),
        (
            {
                "optimizer": {"name": "prodigy"},
                "unfreeze": {"level": "last", "milestones": [1], "milestone_lr": "auto"},
            },
            "milestone_lr=auto does not fit",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(fields, words):
    with pytest.raises(UserError, match=words):
        read_recipe(fields)
