"""The losses: their values against reference libraries, their targets, and what they change in a training."""

from __future__ import annotations

import pytest
import torch
from timm.loss import BinaryCrossEntropy as TimmBinaryCrossEntropy
from torch.nn import functional as F

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.loop.classifier import Classifier
from training.recipe import read_recipe
from training.techniques.loss.class_balance import ClassWeights
from training.techniques.loss.label_smoothing import LabelSmoothing
from training.techniques.loss.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Focal,
    Generalised,
    LogitAdjusted,
    Poly,
    criterion_of,
)

COUNTS = (100, 20, 5)
LOSSES = [BinaryCrossEntropy(), Focal(gamma=1.5), Poly(epsilon=2.0), Generalised(q=0.6), LogitAdjusted(tau=0.8)]
WITH_WEIGHTS = LOSSES[:4]


def loss_of(recipe, logits, targets, *techniques):
    setup = TrainingSetup(torch.nn.Flatten(), "cpu", 3, (len(logits),), 8, COUNTS)
    for technique in techniques:
        technique.apply(setup)
    return Classifier(recipe, setup).criterion(logits, targets)


def draw(count=12):
    torch.manual_seed(0)
    return 3 * torch.randn(count, 3), torch.randint(3, (count,))


def mix(labels, share=0.7):
    one_hot = F.one_hot(labels, 3).float()
    return share * one_hot + (1 - share) * one_hot.roll(1, 0)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_binary_cross_entropy_is_timms_summed_over_the_classes(tiny_recipe, smoothing):
    logits, labels = draw()
    theirs = TimmBinaryCrossEntropy(smoothing=smoothing, sum_classes=True)(logits, labels)
    smooth = [LabelSmoothing(alpha=smoothing)] if smoothing else []
    torch.testing.assert_close(loss_of(tiny_recipe(), logits, labels, BinaryCrossEntropy(), *smooth), theirs)


def test_binary_cross_entropy_has_both_classes_of_a_mixed_image_as_timm_has(tiny_recipe):
    logits, labels = draw()
    theirs = TimmBinaryCrossEntropy(smoothing=0.0, target_threshold=0.2, sum_classes=True)
    for share in (0.7, 0.9):
        mixed = mix(labels, share)
        torch.testing.assert_close(
            loss_of(tiny_recipe(), logits, mixed, BinaryCrossEntropy()), theirs(logits, mixed.clone())
        )


def test_focal_loss_multiplies_the_loss_of_each_image(tiny_recipe):
    logits, labels = draw()
    right = logits.softmax(1).gather(1, labels[:, None])[:, 0]
    losses = (1 - right) ** 1.5 * F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(loss_of(tiny_recipe(), logits, labels, Focal(gamma=1.5)), losses.mean())


def test_poly_loss_adds_the_missing_probability(tiny_recipe):
    logits, labels = draw()
    missing = 1 - logits.softmax(1).gather(1, labels[:, None])[:, 0]
    expected = F.cross_entropy(logits, labels) + 2 * missing.mean()
    torch.testing.assert_close(loss_of(tiny_recipe(), logits, labels, Poly(epsilon=2.0)), expected)


def test_the_generalised_loss_with_q_1_is_half_the_mean_absolute_error_of_the_probabilities(tiny_recipe):
    logits, labels = draw()
    error = (logits.softmax(1) - F.one_hot(labels, 3)).abs().sum(1).mean()
    torch.testing.assert_close(loss_of(tiny_recipe(), logits, labels, Generalised(q=1.0)), error / 2)


def test_the_gradient_of_the_generalised_loss_is_that_of_the_cross_entropy_times_a_power_of_the_probability(
    tiny_recipe,
):
    """Zhang & Sabuncu 2018, section 3.2."""
    logits, labels = draw()
    logits.requires_grad_(True)
    (ours,) = torch.autograd.grad(loss_of(tiny_recipe(), logits, labels, Generalised(q=0.7)), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    right = logits.detach().softmax(1).gather(1, labels[:, None])
    torch.testing.assert_close(ours, plain * right**0.7)


def test_wrong_labels_cost_the_generalised_loss_less_than_the_cross_entropy():
    torch.manual_seed(0)
    truth = torch.arange(600) % 3
    images = F.one_hot(truth, 3).float() * 2 + torch.randn(600, 3)
    given = torch.where(torch.rand(600) < 0.3, (truth + 1) % 3, truth)  # every third label is that of the next class
    found = []
    for loss in (
        lambda x, y: F.cross_entropy(x, y),
        lambda x, y: Generalised().losses(x, F.one_hot(y, 3).float()).mean(),
    ):
        model = torch.nn.Sequential(torch.nn.Linear(3, 128), torch.nn.ReLU(), torch.nn.Linear(128, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(400):
            optimizer.zero_grad()
            loss(model(images), given).backward()
            optimizer.step()
        found.append(float((model(images).argmax(1) == truth).float().mean()))
    assert found[1] > found[0] + 0.02, found


def test_with_logit_adjustment_a_model_without_information_predicts_all_classes_equally(tiny_recipe):
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(COUNTS))
    bias = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([bias], max_iter=100, line_search_fn="strong_wolfe")

    def step():
        optimizer.zero_grad()
        loss = loss_of(tiny_recipe(), bias.expand(len(labels), 3), labels, LogitAdjusted())
        loss.backward()
        return loss

    optimizer.step(step)
    torch.testing.assert_close(bias.softmax(0), torch.full((3,), 1 / 3), atol=1e-3, rtol=0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("smoothing", [[], [LabelSmoothing(alpha=0.3)]])
def test_labels_and_the_same_labels_as_shares_have_the_same_loss(tiny_recipe, loss, smoothing):
    logits, labels = draw()
    hard = loss_of(tiny_recipe(), logits, labels, loss, *smoothing)
    torch.testing.assert_close(hard, loss_of(tiny_recipe(), logits, F.one_hot(labels, 3).float(), loss, *smoothing))
    assert smoothing == [] or hard != loss_of(tiny_recipe(), logits, labels, loss)


@pytest.mark.parametrize(
    "loss", [Focal(gamma=1e-6), Poly(epsilon=1e-6), Generalised(q=1e-4), LogitAdjusted(tau=1e-6)], ids=lambda o: o.name
)
@pytest.mark.parametrize("smoothing", [[], [LabelSmoothing(alpha=0.3)]])
def test_mixed_and_smoothed_targets_are_those_of_the_cross_entropy(tiny_recipe, loss, smoothing):
    logits, labels = draw()
    expected = loss_of(tiny_recipe(), logits, mix(labels), *smoothing)
    tolerance = {"rtol": 2e-3, "atol": 0.0} if isinstance(loss, Generalised) else {}
    torch.testing.assert_close(loss_of(tiny_recipe(), logits, mix(labels), loss, *smoothing), expected, **tolerance)


@pytest.mark.parametrize("loss", WITH_WEIGHTS, ids=lambda loss: loss.name)
def test_class_weights_multiply_the_loss_of_an_image_by_the_shares_of_its_classes(tiny_recipe, loss):
    logits, labels = draw()
    setup = TrainingSetup(torch.nn.Flatten(), "cpu", 3, (12,), 8, COUNTS)
    ClassWeights(power=1.0).apply(setup)
    for targets, weights in ((labels, setup.class_weights[labels]), (mix(labels), mix(labels) @ setup.class_weights)):
        each = torch.stack(
            [loss_of(tiny_recipe(), logits[i : i + 1], targets[i : i + 1], loss) for i in range(len(logits))]
        )
        weighted = loss_of(tiny_recipe(), logits, targets, ClassWeights(power=1.0), loss)
        torch.testing.assert_close(weighted, (each * weights).mean())


@pytest.mark.parametrize("smoothing", [[], [LabelSmoothing(alpha=0.3)]])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_with_class_weights_all_losses_near_the_cross_entropy_equal_it(tiny_recipe, smoothing, is_mixed):
    logits, labels = draw()
    targets = mix(labels) if is_mixed else labels
    plain, *others = (
        loss_of(tiny_recipe(), logits, targets, ClassWeights(power=1.0), *loss, *smoothing)
        for loss in ([], [Focal(gamma=1e-9)], [Poly(epsilon=1e-9)])
    )
    for other in others:
        torch.testing.assert_close(other, plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_are_finite_for_extreme_logits_in_every_number_format(tiny_recipe, loss, kind):
    logits = torch.tensor([[60.0, -60.0, 0.0], [-60.0, 60.0, 0.0]], dtype=kind, requires_grad=True)
    for targets in (torch.tensor([0, 0]), torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])):
        value = loss_of(tiny_recipe(), logits, targets, loss)
        value.backward()
        assert value.isfinite()
        assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["weights", "sampler"])
def test_logit_adjustment_beside_another_correction_of_the_imbalance_is_refused(name):
    with pytest.raises(UserError, match=rf"class_balance\.name={name} would correct the same imbalance twice"):
        read_recipe({"loss": {"name": "logit_adjusted"}, "class_balance": {"name": name}})


@pytest.mark.parametrize("name", ["bce", "focal", "poly", "generalised", "logit_adjusted"])
def test_the_validation_loss_remains_the_plain_cross_entropy(fit, name):
    metrics = fit(loss={"name": name}, mixup={"alpha": 0.4}, label_smoothing={"alpha": 0.1}, epochs=1).metrics[0]
    plain = fit(epochs=1).metrics[0]
    assert metrics["train_loss"] != plain["train_loss"]
    assert 0 < metrics["val_loss"] < 4  # a sum over ten classes would be about 7


TAIL = (600, 200, 60, 20, 10)
UNEQUAL = torch.tensor([0.1, 0.3, 0.9, 1.2, 2.5])


def find_optimum(loss, targets, weights, smoothing):
    """Return the logits (N, classes) with the least loss for each row of targets, by gradient descent."""
    setup = TrainingSetup(torch.nn.Flatten(), "cpu", 5, (len(targets),), 8, TAIL)
    setup.class_weights, setup.label_smoothing = weights, smoothing
    loss.apply(setup)
    criterion, logits = criterion_of(setup), torch.zeros(len(targets), 5, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        criterion(logits, targets).backward()
        optimizer.step()
    return logits.detach()


UNWEIGHTED = [(loss, None) for loss in (CrossEntropy(), *LOSSES, LogitAdjusted(tau=2.0))]
WEIGHTED = [(loss, UNEQUAL) for loss in (CrossEntropy(), *WITH_WEIGHTS)]


@pytest.mark.parametrize("smoothing", [0.0, 0.05, 0.3])
@pytest.mark.parametrize(("loss", "weights"), [*UNWEIGHTED, *WEIGHTED])
def test_the_optimum_of_every_loss_predicts_the_class_of_an_image_and_the_larger_share_of_a_mixed_one(
    loss, weights, smoothing
):
    labels = torch.arange(5)
    one_hot = F.one_hot(labels, 5).float()
    optimum = find_optimum(loss, one_hot, weights, smoothing)
    assert optimum.argmax(1).tolist() == labels.tolist()
    mixed = 0.7 * one_hot + 0.3 * one_hot.roll(1, 0)
    first = mixed.clone()
    if loss.name == "bce":  # both are present
        first = (mixed > 0).float()
    if loss.name == "logit_adjusted":  # as if all classes were equally frequent
        first = mixed / torch.tensor(TAIL) ** loss.tau
    winners = find_optimum(loss, mixed, weights, smoothing).argmax(1)
    assert torch.equal(first.gather(1, winners[:, None])[:, 0], first.amax(1))
