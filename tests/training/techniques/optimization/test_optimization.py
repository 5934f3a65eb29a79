"""Optimizers, accumulation and clipping: the content of an optimizer step."""

from __future__ import annotations

import copy

import pytest
import timm
import timm.optim
import torch
from torch import nn

import training.train as module
from training.errors import UserError
from training.recipe import Recipe, read_recipe

DIRECT = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.03, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.8, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.03, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.03, alpha=0.8, momentum=0.5, weight_decay=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.03, beta2_decay=-0.5, d=1.2, weight_decay=0.01),
    "nadamw": lambda p: timm.optim.NAdamW(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01),
    "lion": lambda p: timm.optim.Lion(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01),
    "lamb": lambda p: timm.optim.Lamb(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01, max_grad_norm=1e9),
    "adan": lambda p: timm.optim.Adan(p, lr=0.03, betas=(0.8, 0.95, 0.7), weight_decay=0.01),
    "muon": lambda p: timm.optim.Muon(p, lr=0.03, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.01),
}
OWN = {
    "rmsprop": {"alpha": 0.8, "momentum": 0.5},
    "adafactor": {"beta2_decay": -0.5, "clip": 1.2},
    **{name: {"momentum": 0.8} for name in ("momentum", "nesterov", "muon")},
    **{name: {"beta1": 0.8, "beta2": 0.95} for name in ("adam", "adamw", "nadamw", "lion", "lamb")},
    "adan": {"beta1": 0.8, "beta2": 0.95, "beta3": 0.7},
}


def build(values, parameters):
    return Recipe.kinds("optimizer")[values["name"]].model_validate(values).build(parameters)


def descend(model, optimizer, steps=6):
    """Minimise the mean square output on the same random inputs; returns the last loss."""
    for seed in range(steps):
        optimizer.zero_grad()
        inputs = torch.randn(4, model.in_features, generator=torch.Generator().manual_seed(seed))
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.parametrize("name", DIRECT)
def test_an_optimizer_steps_as_that_of_its_library_does(name):
    ours = nn.Linear(5, 3)
    theirs = copy.deepcopy(ours)
    values = {"name": name, "lr": 0.03, "weight_decay": 0.01, **OWN.get(name, {})}
    descend(ours, build(values, ours.parameters()))
    descend(theirs, DIRECT[name](theirs.parameters()))
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


EIGHT_BIT = {"name": "adam8bit", "lr": 0.01, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1}


def test_8_bit_adam_keeps_small_tensors_whole_and_then_is_torchs_adamw():
    ours = nn.Linear(5, 3)
    theirs = copy.deepcopy(ours)
    descend(ours, build(EIGHT_BIT, ours.parameters()))
    descend(theirs, torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.8, 0.95), weight_decay=0.1))
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.bias, theirs.bias, rtol=0, atol=1e-5)


def test_the_state_of_8_bit_adam_takes_8_bits_and_trains_as_well():
    torch.manual_seed(0)
    small, large = nn.Linear(256, 128), nn.Linear(256, 128)
    large.load_state_dict(small.state_dict())
    whole = torch.optim.AdamW(large.parameters(), lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)
    eight = build(EIGHT_BIT, small.parameters())
    assert descend(small, eight, 30) == pytest.approx(descend(large, whole, 30), rel=0.05)
    assert {eight.state[small.weight][name].dtype for name in ("state1", "state2")} == {torch.uint8}
    assert not torch.equal(small.weight, large.weight)

    def count_bytes(optimizer):
        entries = [value for state in optimizer.state.values() for value in state.values()]
        return sum(value.nbytes for value in entries if isinstance(value, torch.Tensor))

    assert count_bytes(eight) < 0.3 * count_bytes(whole)


def test_8_bit_adam_is_refused_in_float64():
    with pytest.raises(UserError, match=r"adam8bit does not support float64 weights: set another precision\.mode"):
        read_recipe({"optimizer": {"name": "adam8bit"}, "precision": {"mode": "64-true"}})


def test_8_bit_adam_is_refused_with_kernels_in_another_layout():
    with pytest.raises(UserError, match=r"adam8bit gives each kernel new memory.*set channels_last\.enabled=false"):
        read_recipe({"optimizer": {"name": "adam8bit"}, "channels_last": {"enabled": True}})


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", sorted(Recipe.kinds("optimizer")))
def test_weights_stay_where_they_are_in_memory(name, layout):
    """Averages, snapshots and recorded passes keep the tensors from the start of a training."""
    if name == "adam8bit" and layout is torch.channels_last:
        pytest.skip("it is refused")
    pytest.importorskip("bitsandbytes" if name == "adam8bit" else "torch")
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(512, 10))
    model.to(memory_format=layout)
    optimizer = build({"name": name, "lr": 0.01}, model.parameters())
    before = [weight.data_ptr() for weight in model.parameters()]
    for _ in range(2):
        model(torch.randn(2, 3, 8, 8)).square().mean().backward()
        optimizer.step()
    assert [weight.data_ptr() for weight in model.parameters()] == before


def test_muon_steps_kernels_and_leaves_the_head_and_vectors_to_adam(fit):
    run = fit(optimizer={"name": "muon"}, epochs=1, unfreeze={"level": "most"}, layer_decay={"factor": 0.9})
    saved = torch.load(run.folder / "last.ckpt", weights_only=True)
    states = saved["optimizer_states"][0]
    kinds = {}
    model = timm.create_model("test_resnet", num_classes=10)
    shapes = {
        "head": {(10, model.fc.in_features)},
        "kernel": {tuple(p.shape) for p in model.parameters() if p.ndim == 4},
    }
    for state in states["state"].values():
        tensor = state["momentum_buffer"] if state["use_muon"] else state["exp_avg"]
        kind = next((kind for kind, known in shapes.items() if tuple(tensor.shape) in known), "vector")
        kinds.setdefault(kind, set()).add(bool(state["use_muon"]))
    assert kinds == {"head": {False}, "kernel": {True}, "vector": {False}}


def size(weights, part):
    values = torch.cat([value.flatten() for name, value in weights.items() if part in name])
    return float(values.square().mean().sqrt())


def test_adafactor_trains_adapters_which_start_at_zero(fit, load_weights):
    fields = {"unfreeze": {"level": "last"}, "lora": {"rank": 4}, "epochs": 5}
    fields["backbone"] = {"name": "test_resnet", "weights": "letters"}
    sizes = {}
    for name in ("adafactor", "adamw"):  # 20 steps at the default rates
        sizes[name] = size(load_weights(fit(**fields, optimizer={"name": name}).folder), ".lora_B.")
    assert 1 / 3 < sizes["adafactor"] / sizes["adamw"] < 3, sizes


def test_adafactor_trains_a_head_that_starts_at_zero_and_resumes(fit, load_weights, monkeypatch, tmp_path):
    build = module.build_model

    def build_with_zero_head(*arguments):
        model = build(*arguments)
        nn.init.zeros_(model.fc.weight)  # as torchvision's vision transformers do
        return model

    monkeypatch.setattr(module, "build_model", build_with_zero_head)
    fields = {"optimizer": {"name": "adafactor"}, "epochs": 5}
    whole = load_weights(fit(**fields).folder)
    assert size(whole, "fc.weight") > 0.003
    fit(folder=tmp_path, **fields, on_report=lambda report: report.epoch < 2)
    fit(folder=tmp_path, **fields)
    resumed = load_weights(tmp_path)
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []


class Small(nn.Module):
    """A model without BatchNorm, so that a group of batches is equal to one large batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * 16 * 16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(images.flatten(1))


@pytest.fixture
def small_model(monkeypatch):
    monkeypatch.setattr(module, "build_model", lambda *arguments: Small())


@pytest.fixture
def gradients(monkeypatch):
    """Return the flat gradient of each optimizer step."""
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


def test_scheduled_accumulation_is_the_mean_over_the_group_in_every_epoch(fit, small_model, gradients):
    # 58 images in batches of 8: steps of 1, 3 and 2 batches by epoch, the last of each epoch a partial group.
    data = {"name": "digits", "train_size": 58}
    common = {
        "data": data,
        "optimizer": {"name": "sgd", "lr": 1e-9},
    }  # the weights hardly change, so all runs have the same model
    fit(**common, epochs=3, batch_size=8, accumulation={"schedule": [[1, 3], [2, 2]]})
    scheduled = gradients[:]
    assert len(scheduled) == 8 + 3 + 4
    for epoch, (batch_size, first, last) in enumerate([(8, 0, 8), (24, 8, 11), (16, 11, 15)]):
        gradients.clear()
        fit(**common, epochs=epoch + 1, batch_size=batch_size)
        for group, batch in zip(scheduled[first:last], gradients[first - last :], strict=True):
            torch.testing.assert_close(group, batch, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("accumulation", "reason"),
    [
        ({"batches": 2, "schedule": [[1, 4]]}, "set the same thing: leave one out"),
        ({"schedule": [[0, 4]]}, r"never changes: write accumulation\.batches=4"),
        ({"schedule": [[1, 1]]}, "does not change the number of batches"),
        ({"schedule": [[2, 2], [1, 3]]}, "in rising order, all below epochs=4"),
        ({"schedule": [[4, 2]]}, "in rising order, all below epochs=4"),
        ({"schedule": [[1, 0]]}, "a step takes at least 1 forward pass"),
    ],
)
def test_a_schedule_of_accumulation_without_effect_is_refused(accumulation, reason):
    with pytest.raises(UserError, match=reason):
        read_recipe({"epochs": 4, "accumulation": accumulation})


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
    steps = {"batch_size": 8, "accumulation": {"batches": 4}, **PLAIN}
    fit(**steps)
    free = gradients[0]
    gradients.clear()
    fit(**steps, gradient_clipping={"value": 0.01})
    assert [float(gradient.norm()) for gradient in gradients] == pytest.approx([0.01] * 2, rel=1e-4)
    # Clipping after each forward pass would leave the same norm and turn the direction.
    torch.testing.assert_close(gradients[0], free * (0.01 / free.norm()), rtol=1e-3, atol=1e-7)


def test_clipping_acts_on_each_group_of_scheduled_accumulation(fit, small_model, gradients):
    clipped = {"gradient_clipping": {"value": 0.01}, "optimizer": {"name": "sgd", "lr": 0.01}}
    fit(batch_size=8, epochs=2, accumulation={"schedule": [[0, 2], [1, 4]]}, **clipped)
    assert [float(gradient.norm()) for gradient in gradients] == pytest.approx([0.01] * (4 + 2), rel=1e-4)
