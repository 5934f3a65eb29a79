"""SAM and ASAM: which point they look at, and that nothing but the gradient comes from it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import training.train as module
from training.errors import UserError
from training.loop.classifier import SecondPass
from training.recipe import read_recipe
from training.techniques.optimization import sam
from training.techniques.optimization.sam import Asam, Sam


def make_batch(seed=0, size=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 5, generator=generator), torch.randint(4, (size,), generator=generator)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 4, bias=False))


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]).float(), batch[1])


def gradients_at_worst_point(model, batch, rho):
    """The gradients of SAM, from a copy of the model with other weights."""
    moved = copy.deepcopy(model)
    gradients = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    for weight, gradient in zip(moved.parameters(), gradients, strict=True):
        weight.data += rho * gradient / norm
    return torch.autograd.grad(loss_of(moved, batch), list(moved.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_is_that_at_the_worst_point_and_the_weights_do_not_move(dtype):
    model, batch = make_model(), make_batch()
    before = copy.deepcopy(model.state_dict())
    second = SecondPass(model, Sam(rho=0.5).find_worst_point)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):  # autocast keeps 16-bit copies of the weights
        expected = gradients_at_worst_point(copy.deepcopy(model), batch, 0.5)
        loss = second.compute(loss_of(model, batch), lambda: loss_of(model, batch))
    loss.backward()
    second.restore()
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-5 if dtype == torch.float32 else 0.05, atol=1e-4)
    assert [(name, value) for name, value in model.state_dict().items() if not torch.equal(before[name], value)] == []
    plain = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
    assert not torch.allclose(plain[0], expected[0], rtol=0.1)


def test_asam_looks_at_the_same_point_of_a_function_however_its_layers_are_scaled(monkeypatch):
    monkeypatch.setattr(sam, "ETA", 0.0)
    batch, found = make_batch(), {}
    for scale in (1.0, 10.0):
        for kind in (Sam, Asam):
            model = make_model()  # with ReLU, these two changes cancel
            model[0].weight.data *= scale
            model[2].weight.data /= scale
            second = SecondPass(model, kind(rho=0.3).find_worst_point)
            found[scale, kind] = second.compute(loss_of(model, batch), lambda m=model: loss_of(m, batch)).item()
    assert found[1.0, Asam] == pytest.approx(found[10.0, Asam], rel=1e-4)
    assert found[1.0, Sam] != pytest.approx(found[10.0, Sam], rel=1e-2)


def test_asam_scales_what_the_authors_scale():
    """Their loop over the named parameters (SamsungLabs/ASAM) multiplies by the size twice if the name has `weight`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 4))
    model[1].bias.data.normal_()
    batch, named = make_batch(), dict(model.named_parameters())
    gradients = dict(zip(named, torch.autograd.grad(loss_of(model, batch), list(named.values())), strict=True))
    theirs = {}
    for name, weight in named.items():
        theirs[name] = gradients[name] * (weight.abs() + 0.01) if "weight" in name else gradients[name].clone()
    norm = torch.cat([value.flatten() for value in theirs.values()]).norm()
    for name, weight in named.items():
        theirs[name] *= ((weight.abs() + 0.01) if "weight" in name else 1) * 0.5 / norm
    found = Asam(rho=0.5).find_worst_point(list(named), list(named.values()), list(gradients.values()))
    for ours, expected in zip(found, theirs.values(), strict=True):
        torch.testing.assert_close(ours, expected)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.fc = nn.Linear(3 * 16 * 16, 10)

    def forward(self, images):
        return self.fc(images.flatten(1))


def test_with_accumulation_each_batch_has_its_own_point_and_the_step_is_their_mean(fit, load_weights, monkeypatch):
    batches, train = [], module._fit

    def keep(classifier, loaders, *rest):
        loaders.train.batch_sampler.sampler.set_epoch(0)
        batches.extend(loaders.train)
        return train(classifier, loaders, *rest)

    monkeypatch.setattr(module, "build_model", lambda *arguments: Small())
    monkeypatch.setattr(module, "_fit", keep)
    fields = {"batch_size": 16, "accumulation": {"batches": 2}, "optimizer": {"name": "sgd", "lr": 0.1}, "epochs": 1}
    ours = load_weights(fit(**fields, sam={"name": "sam", "rho": 1.0}).folder)
    theirs = Small()
    for group in (batches[:2], batches[2:]):
        each = [gradients_at_worst_point(theirs, batch, 1.0) for batch in group]
        for weight, *gradients in zip(theirs.parameters(), *each, strict=True):
            weight.data -= 0.1 * sum(gradients) / 2
    torch.testing.assert_close(ours["fc.weight"], theirs.fc.weight.data, rtol=1e-4, atol=1e-6)


def test_the_statistics_of_batch_norm_are_those_of_the_first_pass(fit, load_weights):
    still = {"optimizer": {"name": "sgd", "lr": 1e-12}, "epochs": 1}
    plain = load_weights(fit(**still).folder)
    sharp = load_weights(fit(**still, sam={"name": "sam", "rho": 5.0}).folder)
    for name in plain:
        if "running" in name or "tracked" in name:
            torch.testing.assert_close(sharp[name], plain[name], rtol=1e-5, atol=1e-6)


def test_recomputed_activations_are_those_at_the_worst_point(fit, load_weights):
    fields = {"sam": {"name": "sam", "rho": 0.5}, "optimizer": {"name": "sgd", "lr": 0.05}, "epochs": 1}
    plain = load_weights(fit(**fields).folder)
    recomputed = load_weights(fit(**fields, activation_checkpointing={"enabled": True}).folder)
    assert [name for name in plain if not torch.equal(plain[name], recomputed[name])] == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"precision": {"mode": "16-mixed"}}, "needs an unscaled gradient: set precision.mode=bf16-mixed"),
        ({"data_parallel": {"devices": 2}}, "works on one device, not on data_parallel.devices=2"),
        ({"compilation": {"backend": "inductor"}}, "set compilation.backend=none"),
    ],
)
def test_what_does_not_fit_two_passes_is_refused(fields, reason):
    with pytest.raises(UserError, match=reason):
        read_recipe({"sam": {"name": "asam"}, **fields})
