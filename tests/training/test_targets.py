"""Label smoothing and MixUp: what the loss and the batch equal."""

from __future__ import annotations

import pytest
import torch
from timm.data.mixup import Mixup
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import nn

from training.classifier import Classifier
from training.techniques.base import TrainingSetup
from training.techniques.label_smoothing import LabelSmoothing
from training.techniques.mixup import MixUp

CLASSES = 10


def prepare(*techniques):
    setup = TrainingSetup(nn.Flatten(), "cpu", CLASSES, (8,))
    for technique in techniques:
        technique.apply(setup)
    return setup


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_label_smoothing_equals_timms(alpha):
    logits, labels = torch.randn(32, CLASSES), torch.randint(CLASSES, (32,))
    ours = prepare(LabelSmoothing(alpha=alpha)).criterion(logits, labels)
    torch.testing.assert_close(ours, LabelSmoothingCrossEntropy(alpha)(logits, labels))


def test_label_smoothing_of_mixed_targets_equals_timms_smoothed_mixup():
    images, labels = torch.randn(8, 3, 4, 4), torch.randint(CLASSES, (8,))
    logits = torch.randn(8, CLASSES)
    setup = prepare(MixUp(alpha=1.0), LabelSmoothing(alpha=0.2))
    torch.manual_seed(0)
    _, targets = setup.batch_transforms[0](images, labels)
    weights = (targets - targets.roll(1, 0)).abs()  # only to see that mixing took place
    assert weights.sum() > 0
    smoothed = targets * 0.8 + 0.2 / CLASSES
    torch.testing.assert_close(setup.criterion(logits, targets), SoftTargetCrossEntropy()(logits, smoothed))


def test_mixup_agrees_with_timms_for_the_same_share_and_partner(monkeypatch):
    images, labels = torch.randn(6, 3, 4, 4), torch.arange(6)
    share = 0.3
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self, shape=(): torch.tensor(share))
    mixed, targets = prepare(MixUp(alpha=0.4)).batch_transforms[0](images.clone(), labels)
    theirs = Mixup(mixup_alpha=1.0, label_smoothing=0.0, num_classes=CLASSES)
    monkeypatch.setattr(theirs, "_params_per_batch", lambda: (share, False))
    # timm pairs with the batch upside down, torchvision with the neighbour before: mix pairs, where that is the same.
    for first in range(0, 6, 2):
        pair = torch.stack([images[first + 1], images[first]])
        reference, wanted = theirs(pair.clone(), torch.stack([labels[first + 1], labels[first]]))
        torch.testing.assert_close(mixed[first + 1], reference[0])
        torch.testing.assert_close(targets[first + 1], wanted[0])


def test_mixup_draws_one_share_a_batch_from_beta():
    transform = prepare(MixUp(alpha=0.2)).batch_transforms[0]
    torch.manual_seed(0)
    shares = torch.stack([transform(torch.zeros(2, 3, 4, 4), torch.tensor([0, 1]))[1][:, 0] for _ in range(2000)])
    torch.testing.assert_close(shares.sum(1), torch.ones(2000))  # the same share for both images
    reference = torch.distributions.Beta(0.2, 0.2).sample((2000,))
    for quantile in (0.05, 0.25, 0.75, 0.95):
        assert abs(shares[:, 0].quantile(quantile) - reference.quantile(quantile)) < 0.06


def test_mixup_leaves_the_batch_it_was_given_alone():
    images, labels = torch.randn(4, 3, 4, 4), torch.arange(4)
    before = images.clone()
    mixed, _ = prepare(MixUp(alpha=1.0)).batch_transforms[0](images, labels)
    assert torch.equal(images, before)
    assert not torch.equal(mixed, before)


def test_validation_loss_is_plain_cross_entropy_and_accuracies_know_no_mixing(tiny_recipe, monkeypatch):
    recipe = tiny_recipe(mixup={"alpha": 1.0}, label_smoothing={"alpha": 0.5})
    setup = prepare(*recipe.techniques())
    classifier = Classifier(recipe, setup)
    classifier.on_train_epoch_start()
    monkeypatch.setattr(Classifier, "_lr", lambda self: 0.1)
    images, labels = torch.randn(40, CLASSES, 1, 1), torch.randint(CLASSES, (40,))
    logits = images.flatten(1)
    classifier.validation_step((images, labels), 0)
    classifier.validation_step((images, labels), 0, dataloader_idx=1)
    classifier.loss_sum, classifier.image_count = torch.tensor(3.0), 3
    metrics, _, _ = classifier.collect("val_accuracy")
    assert metrics["val_loss"] == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-6)
    assert metrics["val_accuracy"] == metrics["train_accuracy"]
    assert metrics["train_accuracy"] == pytest.approx(float((logits.argmax(1) == labels).float().mean()))


def test_mixing_reaches_training_batches_and_no_others(fit, monkeypatch):
    seen = {True: 0, False: 0}
    forward = Classifier.validation_step
    from torchvision.transforms import v2

    mix = v2.MixUp.transform

    def count(self, *arguments):
        seen[torch.is_grad_enabled()] += 1
        return mix(self, *arguments)

    monkeypatch.setattr(v2.MixUp, "transform", count)
    run = fit(mixup={"alpha": 1.0}, epochs=1)
    assert forward is Classifier.validation_step
    assert seen[False] == 0
    assert seen[True] > 0
    assert 0 <= run.metrics[0]["train_accuracy"] <= 1
