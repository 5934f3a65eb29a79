"""L2-SP: the weights are those that torch finds for a loss with the penalty of the paper."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import training.train as module
from training.errors import UserError
from training.recipe import read_recipe


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Linear(3 * 16 * 16, 8)
        self.fc = nn.Linear(8, 10)

    def forward(self, images):
        return self.fc(self.body(images.flatten(1)).relu())

    def get_classifier(self):
        return self.fc


PRETRAINED = {"backbone": {"name": "test_resnet", "weights": "letters"}}
ALPHA, BETA, LR = 2.0, 0.5, 0.02


def penalty(model, start):
    """Return the penalty of the paper, with alpha for the body and beta for the head."""
    moved = sum((now - before).square().sum() for now, before in zip(model.body.parameters(), start, strict=True))
    return ALPHA / 2 * moved + BETA / 2 * sum(weight.square().sum() for weight in model.fc.parameters())


@pytest.fixture
def fit_small(fit, load_weights, monkeypatch):
    """Train the small model for one epoch; returns its weights, and the batches."""

    def run(**fields):
        batches, train = [], module._fit

        def keep(classifier, loaders, *rest):
            loaders.train.batch_sampler.sampler.set_epoch(0)
            batches.extend(loaders.train)
            return train(classifier, loaders, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(module, "build_model", lambda *arguments: Small())
            patch.setattr(module, "_fit", keep)
            run = fit(**PRETRAINED, l2_sp={"alpha": ALPHA, "beta": BETA}, epochs=1, **fields)
        return load_weights(run.folder), batches

    return run


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_steps_are_those_of_a_loss_with_the_penalty_also_with_accumulation_and_clipping(clip, fit_small):
    ours, batches = fit_small(
        accumulation={"batches": 2}, optimizer={"name": "sgd", "lr": LR}, gradient_clipping={"value": clip}
    )
    theirs = Small()
    start = [weight.detach().clone() for weight in theirs.body.parameters()]
    for group in (batches[:2], batches[2:]):
        loss = sum(F.cross_entropy(theirs(images), labels) for images, labels in group) / 2 + penalty(theirs, start)
        theirs.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        for weight in theirs.parameters():
            weight.data -= LR * weight.grad
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6)


def test_with_sam_the_pull_is_that_of_the_weights_and_not_of_the_worst_point(fit_small):
    ours, batches = fit_small(sam={"name": "sam", "rho": 1.0}, optimizer={"name": "sgd", "lr": LR})
    theirs = Small()
    start = [weight.detach().clone() for weight in theirs.body.parameters()]
    for images, labels in batches:
        first = torch.autograd.grad(F.cross_entropy(theirs(images), labels), list(theirs.parameters()))
        worst, norm = copy.deepcopy(theirs), torch.cat([one.flatten() for one in first]).norm()
        for weight, gradient in zip(worst.parameters(), first, strict=True):
            weight.data += gradient / norm
        sharp = torch.autograd.grad(F.cross_entropy(worst(images), labels), list(worst.parameters()))
        pull = torch.autograd.grad(penalty(theirs, start), list(theirs.parameters()))
        for weight, *both in zip(theirs.parameters(), sharp, pull, strict=True):
            weight.data -= LR * sum(both)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6)


def test_a_strong_pull_keeps_the_backbone_at_its_start_while_the_head_trains(fit, load_weights):
    fields = {**PRETRAINED, "optimizer": {"name": "sgd", "lr": 0.01}, "epochs": 3}
    start = load_weights(fit(**{**fields, "epochs": 1, "optimizer": {"name": "sgd", "lr": 1e-12}}).folder)
    free, pulled = (load_weights(fit(**fields, l2_sp={"alpha": a}).folder) for a in (0.0, 50.0))

    def moved(weights, name):
        return (weights[name] - start[name]).norm().item()

    for name in ("conv1.0.weight", "layer3.0.conv1.weight"):
        assert moved(pulled, name) < 0.6 * moved(free, name)
    assert moved(pulled, "fc.weight") > 0.8 * moved(free, "fc.weight")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"backbone": {"weights": "none"}},
            r"l2_sp\.alpha=0\.1 pulls towards pretrained weights, which backbone\.weights=none",
        ),
        ({"unfreeze": {"level": "last"}}, r"does nothing while unfreeze\.level=last trains the head alone"),
        ({"unfreeze": {"level": "most"}, "lora": {"rank": 2}}, r"does not fit lora\.rank=2"),
    ],
)
def test_what_has_no_start_to_pull_to_is_refused(fields, reason):
    with pytest.raises(UserError, match=reason):
        read_recipe({"l2_sp": {"alpha": 0.1}, **fields})
