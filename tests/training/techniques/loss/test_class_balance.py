"""Class balance: what a weighted loss equals, and how often a balanced sampler loads each class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from training.contract.setup import TrainingSetup
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.data.pipelines.sampling import EpochSampler
from training.loop.classifier import Classifier
from training.resolve import resolve_recipe
from training.techniques.data.mixing import change_batch
from training.techniques.data.mixup import MixUp
from training.techniques.loss.class_balance import ClassWeights
from training.techniques.loss.label_smoothing import LabelSmoothing

COUNTS = (100, 20, 5)


def loss_of(recipe, logits, targets, *techniques):
    setup = TrainingSetup(torch.nn.Flatten(), "cpu", 3, (len(logits),), 8, COUNTS)
    for technique in techniques:
        technique.apply(setup)
    return Classifier(recipe, setup).criterion(logits, targets), setup.class_weights


def test_the_loss_of_labels_is_torchs_weighted_sum_over_the_images(tiny_recipe):
    logits, labels = torch.randn(12, 3), torch.tensor([0] * 8 + [1] * 3 + [2])
    ours, weights = loss_of(tiny_recipe(), logits, labels, ClassWeights(power=0.7))
    assert weights[2] / weights[0] == pytest.approx(20**0.7, rel=1e-5)
    torch.testing.assert_close(ours, F.cross_entropy(logits, labels, weights, reduction="sum") / 12)


@pytest.mark.parametrize("smoothing", [[], [LabelSmoothing(alpha=0.3)]])
def test_labels_and_the_same_labels_as_shares_give_the_same_loss(tiny_recipe, smoothing):
    logits, labels = torch.randn(12, 3), torch.randint(3, (12,))
    hard, weights = loss_of(tiny_recipe(), logits, labels, ClassWeights(power=1.0), *smoothing)
    soft, _ = loss_of(tiny_recipe(), logits, F.one_hot(labels, 3).float(), ClassWeights(power=1.0), *smoothing)
    torch.testing.assert_close(hard, soft)
    each = F.cross_entropy(logits, labels, reduction="none", label_smoothing=0.3 if smoothing else 0.0)
    torch.testing.assert_close(hard, (each * weights[labels]).mean())


def test_mixed_targets_are_weighted_by_their_shares(tiny_recipe):
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    shares = 0.7 * F.one_hot(labels, 3) + 0.3 * F.one_hot(labels.roll(1), 3)
    mixed, weights = loss_of(tiny_recipe(), logits, shares, ClassWeights(power=1.0))
    each = F.cross_entropy(logits, shares, reduction="none")
    torch.testing.assert_close(mixed, (each * (0.7 * weights[labels] + 0.3 * weights[labels.roll(1)])).mean())


def test_smoothing_beside_weights_keeps_the_class_of_an_image_the_most_probable(tiny_recipe):
    """With torch's weights, which multiply each term of a smoothed target, the rarest class wins everywhere."""
    labels = torch.tensor([0, 1, 2])
    logits = torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.3)
    for _ in range(500):
        optimizer.zero_grad()
        loss, _ = loss_of(tiny_recipe(), logits, labels, ClassWeights(power=1.0), LabelSmoothing(alpha=0.3))
        loss.backward()
        optimizer.step()
    assert logits.argmax(1).tolist() == [0, 1, 2]
    torch.testing.assert_close(logits.softmax(1).diagonal(), torch.full((3,), 0.8), rtol=0, atol=0.01)


def test_over_the_training_images_the_mean_weight_is_one(tiny_recipe):
    setup = TrainingSetup(torch.nn.Flatten(), "cpu", 3, (1,), 8, COUNTS)
    ClassWeights(power=1.0).apply(setup)
    counts = torch.tensor(COUNTS)
    assert float((setup.class_weights * counts).sum() / counts.sum()) == pytest.approx(1)
    # With power 1, all classes have the same weight.
    assert (setup.class_weights * counts / sum(COUNTS)).tolist() == pytest.approx([1 / 3] * 3)


def epochs_of(labels, epoch_size, epochs, seed=0):
    sampler = EpochSampler(len(labels), epoch_size, seed, labels)
    drawn = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        drawn.append([position for position, _ in sampler])
    return drawn


@pytest.mark.parametrize("epoch_size", [None, 7, 40])
def test_a_balanced_sampler_loads_every_class_and_within_it_every_image_equally_often(epoch_size):
    labels = np.repeat([0, 1, 3], [14, 5, 2])  # no image of class 2
    drawn = epochs_of(labels, epoch_size, 60)
    assert {len(epoch) for epoch in drawn} == {epoch_size or 21}
    stream = np.concatenate(drawn)
    for end in range(3, len(stream), 3):
        counts = np.bincount(labels[stream[:end]], minlength=4)
        assert counts[[0, 1, 3]].tolist() == [end // 3] * 3
        assert counts[2] == 0
    images = np.bincount(stream, minlength=21)
    for label in (0, 1, 3):
        assert np.ptp(images[labels == label]) <= 1


def test_the_epochs_of_a_balanced_sampler_are_windows_of_one_stream_that_follows_from_the_seed():
    labels = np.repeat([0, 1], [9, 4])
    whole = epochs_of(labels, 30, 1)[0]
    assert np.concatenate(epochs_of(labels, 6, 5)).tolist() == whole
    late = EpochSampler(13, 6, 0, labels)
    late.set_epoch(4)  # as after a resume
    assert [position for position, _ in late] == whole[24:]
    assert epochs_of(labels, 30, 1, seed=1)[0] != whole
    assert len({tuple(labels[whole][start : start + 2]) for start in range(0, 30, 2)}) == 2  # no fixed order of classes


def test_a_balanced_batch_mixes_images_of_the_same_class_as_often_as_chance():
    """Between neighbours it is 1.2 %: each round of the sampler has every class once."""
    setup = TrainingSetup(torch.nn.Flatten(), "cpu", 9, (), 8)
    MixUp(alpha=1.0).apply(setup)
    labels = np.repeat(np.arange(9), 40)
    drawn = torch.from_numpy(labels[epochs_of(labels, 360, 20)])
    torch.manual_seed(0)
    same = [
        (change_batch(setup, torch.zeros(36, 3, 1, 1), batch)[1].max(1).values == 1).float().mean()
        for batch in drawn.flatten().split(36)
    ]
    # Each class has 3 of the 35 other images of a batch.
    assert float(torch.stack(same).mean()) == pytest.approx(3 / 35, abs=0.01)


def test_with_full_weights_a_model_without_information_predicts_all_classes_equally(tiny_recipe):
    labels = torch.from_numpy(np.repeat([0, 1, 2], COUNTS))
    for technique, expected in (([], [0.8, 0.16, 0.04]), ([ClassWeights(power=1.0)], [1 / 3] * 3)):
        bias = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.LBFGS([bias], max_iter=100, line_search_fn="strong_wolfe")

        def step(bias=bias, optimizer=optimizer, technique=technique):
            optimizer.zero_grad()
            loss, _ = loss_of(tiny_recipe(), bias.expand(len(labels), 3), labels, *technique)
            loss.backward()
            return loss

        optimizer.step(step)
        torch.testing.assert_close(bias.softmax(0), torch.tensor(expected), atol=1e-3, rtol=0)


def test_training_batches_are_balanced_if_the_recipe_requests_it(tiny_recipe):
    recipe = tiny_recipe(data={"name": "digits", "train_size": 300}, batch_size=20, class_balance={"name": "sampler"})
    data = load_data(recipe.data)
    kept = np.sort(np.concatenate([np.flatnonzero(data.train.labels == c)[: 2 * c + 2] for c in range(10)]))
    data = replace(data, train=data.train.select(kept))
    loaders = make_loaders(data, resolve_recipe(recipe, data, "cpu"), workers=0)
    for _, labels in list(loaders.train)[:-1]:
        assert np.bincount(labels, minlength=10).tolist() == [2] * 10
