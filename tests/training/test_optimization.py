"""Optimizers, accumulation and clipping: what a step is made of."""

from __future__ import annotations

import copy

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

import training.train as module
from training.techniques.optimizer import Optimizer

DIRECT = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.03, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.8, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01),
}
OWN = {
    **{name: {"momentum": 0.8} for name in ("momentum", "nesterov")},
    **{name: {"beta1": 0.8, "beta2": 0.95} for name in ("adam", "adamw")},
}


@pytest.mark.parametrize("name", DIRECT)
def test_an_optimizer_steps_as_torchs_does(name):
    ours = nn.Linear(5, 3)
    theirs = copy.deepcopy(ours)
    values = {"name": name, "lr": 0.03, "weight_decay": 0.01, **OWN.get(name, {})}
    steppers = (
        (ours, TypeAdapter(Optimizer).validate_python(values).build(ours.parameters())),
        (theirs, DIRECT[name](theirs.parameters())),
    )
    for seed in range(6):
        for model, optimizer in steppers:
            optimizer.zero_grad()
            model(torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


class Small(nn.Module):
    """Without BatchNorm, so that a group of batches is one large batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * 32 * 32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(images.flatten(1))


@pytest.fixture
def small_model(monkeypatch):
    monkeypatch.setattr(module, "build_model", lambda *arguments: Small())


@pytest.fixture
def gradients(monkeypatch):
    """The gradient that each optimizer step sees, flat."""
    seen: list[torch.Tensor] = []
    step = torch.optim.SGD.step

    def watch(self, closure=None):
        result = closure()
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        seen.append(torch.cat([grad.flatten().clone() for grad in grads]))
        step(self)
        return result

    monkeypatch.setattr(torch.optim.SGD, "step", watch)
    return seen


PLAIN = {"optimizer": {"name": "sgd", "lr": 0.01}, "epochs": 1}


@pytest.mark.parametrize("technique", [{}, {"label_smoothing": {"alpha": 0.3}}])
def test_accumulated_gradients_are_the_mean_over_the_group(technique, fit, small_model, gradients):
    # 58 images: batches of 8, the last of 2. In groups of 3 batches: 24, 24 and 10 images.
    data = {"name": "digits", "train_size": 58}
    fit(data=data, batch_size=8, accumulation={"batches": 3}, **PLAIN, **technique)
    accumulated = gradients[:]
    gradients.clear()
    fit(data=data, batch_size=24, **PLAIN, **technique)
    assert len(accumulated) == len(gradients) == 3
    for group, batch in zip(accumulated, gradients, strict=True):
        torch.testing.assert_close(group, batch, rtol=1e-4, atol=1e-6)


def test_accumulation_over_more_batches_than_an_epoch_has_is_one_step_an_epoch(fit, small_model, gradients):
    run = fit(batch_size=16, accumulation={"batches": 100}, **{**PLAIN, "epochs": 2})
    accumulated = gradients[:]
    gradients.clear()
    fit(batch_size=64, **{**PLAIN, "epochs": 2})
    assert len(accumulated) == len(gradients) == 2
    torch.testing.assert_close(accumulated[1], gradients[1], rtol=1e-4, atol=1e-6)
    assert [len(report.steps) for report in run.outcome.reports] == [1, 1]


def test_the_training_loss_is_the_mean_over_images_whatever_the_accumulation(fit, small_model):
    # Nothing moves at this rate, so that both see the same model.
    still = {"data": {"name": "digits", "train_size": 58}, "epochs": 1, "optimizer": {"name": "sgd", "lr": 1e-9}}
    plain = fit(batch_size=8, **still).metrics[0]["train_loss"]
    accumulated = fit(batch_size=8, accumulation={"batches": 3}, **still).metrics[0]["train_loss"]
    assert accumulated == pytest.approx(plain, rel=1e-5)


def test_clipping_bounds_the_norm_the_optimizer_sees(fit, small_model, gradients):
    fit(**PLAIN)
    free = [float(gradient.norm()) for gradient in gradients]
    gradients.clear()
    bound = min(free) / 2
    fit(gradient_clipping={"value": bound}, **PLAIN)
    assert [float(gradient.norm()) for gradient in gradients] == pytest.approx([bound] * len(free), rel=1e-4)


def test_clipping_by_value_bounds_each_entry_and_leaves_small_ones(fit, small_model, gradients):
    fit(**PLAIN)
    free = gradients[0]
    gradients.clear()
    bound = float(free.abs().quantile(0.9))
    fit(gradient_clipping={"value": bound, "algorithm": "value"}, **PLAIN)
    torch.testing.assert_close(gradients[0], free.clamp(-bound, bound))


def test_clipping_acts_on_the_accumulated_gradient(fit, small_model, gradients):
    fit(batch_size=8, accumulation={"batches": 4}, gradient_clipping={"value": 0.01}, **PLAIN)
    assert [float(gradient.norm()) for gradient in gradients] == pytest.approx([0.01] * 2, rel=1e-4)
