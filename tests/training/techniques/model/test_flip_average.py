"""The average over mirror images: what is predicted, and what stays as it is in training."""

from __future__ import annotations

import pytest
import timm
import torch

from training.contract.setup import TrainingSetup
from training.techniques.model.flip_average import FlipAverage


@pytest.fixture
def models():
    """Return a plain model, and the same one with the average."""
    torch.manual_seed(0)
    plain, averaged = (timm.create_model("test_resnet", num_classes=10) for _ in range(2))
    averaged.load_state_dict(plain.state_dict())
    FlipAverage(enabled=True).apply(TrainingSetup(averaged, "cpu", 10, (4,), 32))
    return plain, averaged


def test_predictions_are_the_mean_of_both_logits(models):
    plain, averaged = (model.eval() for model in models)
    for count in (1, 5):
        images = torch.randn(count, 3, 32, 32)
        expected = (plain(images) + plain(images.flip(3))) / 2
        torch.testing.assert_close(averaged(images), expected)
        torch.testing.assert_close(averaged(images.flip(3)), expected)


def test_training_batches_are_not_doubled(models):
    plain, averaged = models
    images = torch.randn(4, 3, 32, 32)
    assert torch.equal(plain(images), averaged(images))
    assert torch.equal(plain.bn1.running_mean, averaged.bn1.running_mean)


def test_batch_norm_is_measured_without_mirror_images(models):
    """As after an average of the weights: only BatchNorm is in training mode."""
    images = torch.randn(4, 3, 32, 32)
    for model in models:
        model.eval()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.train()
        model(images)
    plain, averaged = models
    assert torch.equal(plain.layer4[0].bn1.running_mean, averaged.layer4[0].bn1.running_mean)


def test_the_weights_are_those_of_a_training_without_it_and_the_scores_are_not(fit):
    runs = [fit(epochs=2, flip_average={"enabled": enabled}) for enabled in (False, True)]
    assert runs[0].metrics[-1]["train_loss"] == runs[1].metrics[-1]["train_loss"]
    assert runs[0].metrics[-1]["val_loss"] != runs[1].metrics[-1]["val_loss"]
