"""Label smoothing, erasing and mixing: the values of the loss and of the batch."""

from __future__ import annotations

import random

import lightning.pytorch as pl
import pytest
import torch
from timm.data.mixup import Mixup
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import nn

from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.loop.classifier import Classifier
from training.recipe import read_recipe
from training.techniques.data.cutmix import CutMix
from training.techniques.data.fmix import FMix, draw_mask
from training.techniques.data.mixing import Mixing, change_batch
from training.techniques.data.mixup import MixUp
from training.techniques.data.random_erasing import RandomErasing
from training.techniques.loss.label_smoothing import LabelSmoothing
from training.techniques.loss.losses import criterion_of

CLASSES = 10


def prepare(*techniques):
    setup = TrainingSetup(nn.Flatten(), "cpu", CLASSES, (8,), 8)
    for technique in techniques:
        technique.apply(setup)
    return setup


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_label_smoothing_equals_timms(alpha):
    logits, labels = torch.randn(32, CLASSES), torch.randint(CLASSES, (32,))
    ours = criterion_of(prepare(LabelSmoothing(alpha=alpha)))(logits, labels)
    torch.testing.assert_close(ours, LabelSmoothingCrossEntropy(alpha)(logits, labels))


def test_label_smoothing_of_mixed_targets_equals_timms_smoothed_mixup():
    images, labels = torch.randn(8, 3, 4, 4), torch.randint(CLASSES, (8,))
    logits = torch.randn(8, CLASSES)
    setup = prepare(MixUp(alpha=1.0), LabelSmoothing(alpha=0.2))
    torch.manual_seed(0)
    _, targets = setup.mixers[0](images, labels)
    weights = (targets - targets.roll(1, 0)).abs()  # this shows that mixing took place
    assert weights.sum() > 0
    smoothed = targets * 0.8 + 0.2 / CLASSES
    torch.testing.assert_close(criterion_of(setup)(logits, targets), SoftTargetCrossEntropy()(logits, smoothed))


def test_mixup_agrees_with_timms_for_the_same_share_and_partner(monkeypatch):
    images, labels = torch.randn(6, 3, 4, 4), torch.arange(6)
    share = 0.3
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self, shape=(): torch.tensor(share))
    mixed, targets = prepare(MixUp(alpha=0.4)).mixers[0](images.clone(), labels)
    theirs = Mixup(mixup_alpha=1.0, label_smoothing=0.0, num_classes=CLASSES)
    monkeypatch.setattr(theirs, "_params_per_batch", lambda: (share, False))
    # timm pairs with the batch upside down, torchvision with the neighbour before: mix pairs, where that is the same.
    for first in range(0, 6, 2):
        pair = torch.stack([images[first + 1], images[first]])
        reference, wanted = theirs(pair.clone(), torch.stack([labels[first + 1], labels[first]]))
        torch.testing.assert_close(mixed[first + 1], reference[0])
        torch.testing.assert_close(targets[first + 1], wanted[0])


def test_mixup_draws_one_share_a_batch_from_beta():
    transform = prepare(MixUp(alpha=0.2)).mixers[0]
    torch.manual_seed(0)
    shares = torch.stack([transform(torch.zeros(2, 3, 4, 4), torch.tensor([0, 1]))[1][:, 0] for _ in range(2000)])
    torch.testing.assert_close(shares.sum(1), torch.ones(2000))  # the same share for both images
    reference = torch.distributions.Beta(0.2, 0.2).sample((2000,))
    for quantile in (0.05, 0.25, 0.75, 0.95):
        assert abs(shares[:, 0].quantile(quantile) - reference.quantile(quantile)) < 0.06


def test_mixup_leaves_the_batch_it_was_given_alone():
    images, labels = torch.randn(4, 3, 4, 4), torch.arange(4)
    before = images.clone()
    mixed, _ = prepare(MixUp(alpha=1.0)).mixers[0](images, labels)
    assert torch.equal(images, before)
    assert not torch.equal(mixed, before)


def test_validation_loss_is_plain_cross_entropy_and_training_accuracy_that_of_the_larger_share(
    tiny_recipe, monkeypatch
):
    recipe = tiny_recipe(mixup={"alpha": 1.0}, label_smoothing={"alpha": 0.5})
    setup = prepare(*recipe.techniques())
    classifier = Classifier(recipe, setup)
    classifier.trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    classifier.on_train_epoch_start()
    monkeypatch.setattr(Classifier, "_lr", lambda self: 0.1)
    images, labels = torch.randn(40, CLASSES, 1, 1), torch.randint(CLASSES, (40,))
    logits = images.flatten(1)
    classifier.validation_step((images, labels), 0)

    def mix(images, labels):
        one_hot = nn.functional.one_hot(labels, CLASSES)
        return images, 0.6 * one_hot + 0.4 * one_hot.roll(1, 0)

    classifier.plan.mixers[:] = [mix]
    classifier.model = nn.Flatten()
    classifier.batches_per_step, classifier.loss_weights = 1, (1.0,)
    monkeypatch.setattr(classifier, "_record", lambda loss, size, index: None)
    classifier.training_step((images, labels), 0)
    classifier.loss_sum, classifier.image_count = torch.tensor(3.0), 40
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


@pytest.mark.parametrize("size", [(7, 9), (8, 8)])
def test_cutmix_agrees_with_timms_for_the_same_box(size, monkeypatch):
    height, width = size
    images, labels = torch.randn(6, 3, height, width), torch.arange(6)
    torch.manual_seed(3)
    mixed, targets = prepare(CutMix(alpha=1.0)).mixers[0](images, labels)
    taken = (mixed[0, 0] != images[0, 0]).nonzero()
    (top, left), (bottom, right) = taken.min(0).values.tolist(), (taken.max(0).values + 1).tolist()
    share = 1 - (bottom - top) * (right - left) / (height * width)  # the true area, after the border cut it
    theirs = Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=CLASSES)
    monkeypatch.setattr(theirs, "_params_per_batch", lambda: (share, True))
    monkeypatch.setattr("timm.data.mixup.cutmix_bbox_and_lam", lambda *_, **__: ((top, bottom, left, right), share))
    for first in range(0, 6, 2):  # timm pairs with the batch upside down, torchvision with the neighbour before
        pair = torch.stack([images[first + 1], images[first]])
        reference, wanted = theirs(pair.clone(), torch.stack([labels[first + 1], labels[first]]))
        torch.testing.assert_close(mixed[first + 1], reference[0])
        torch.testing.assert_close(targets[first + 1], wanted[0])


@pytest.mark.parametrize("mixer", [CutMix(alpha=1.0), FMix(alpha=1.0)])
@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 5)])
def test_targets_go_by_the_share_of_pixels(mixer, size):
    for count in (2, 5):
        images = torch.arange(1.0, count + 1)[:, None, None, None].expand(count, 3, *size)
        for seed in range(20):
            torch.manual_seed(seed)
            mixed, targets = prepare(mixer).mixers[0](images, torch.arange(count))
            own = (mixed == images)[:, 0].float().mean((1, 2))
            torch.testing.assert_close(targets.diagonal(), own)
            torch.testing.assert_close(targets.sum(1), torch.ones(count))
            assert torch.equal(mixed.unique(), images.unique())  # a pixel is of one image or the other


def test_a_batch_of_one_is_mixed_with_itself_and_so_left_alone():
    images, labels = torch.randn(1, 3, 8, 8), torch.tensor([4])
    for mixer in (MixUp(alpha=1.0), CutMix(alpha=1.0), FMix(alpha=1.0)):
        mixed, targets = prepare(mixer).mixers[0](images, labels)
        torch.testing.assert_close(mixed, images)
        torch.testing.assert_close(targets, nn.functional.one_hot(labels, CLASSES).float())


@pytest.mark.parametrize("mixer", [MixUp(alpha=1.0), CutMix(alpha=1.0), FMix(alpha=1.0)])
def test_every_other_image_of_the_batch_is_a_partner_equally_often(mixer):
    setup, images = prepare(mixer), torch.randn(5, 3, 8, 8)
    torch.manual_seed(0)
    pairs = torch.zeros(5, 5)
    for _ in range(800):
        _, targets = change_batch(setup, images, torch.arange(5))
        pairs += targets[:, :5] > 0
    # A share of exactly 0 or 1 shows no partner.
    partners = pairs - torch.diag(pairs.diagonal())
    expected = (1 - torch.eye(5)) / 4
    assert (abs(partners / partners.sum(1, keepdim=True) - expected) < 0.06).all()


@pytest.mark.parametrize("mixer", [MixUp(alpha=1.0), CutMix(alpha=1.0), FMix(alpha=1.0)])
def test_images_and_their_targets_keep_their_place_and_mix_with_the_same_partner(mixer):
    """Image i has the level 10^i everywhere, so the mean level shows which images are in it, with which shares."""
    levels = 10.0 ** torch.arange(5)
    for seed in range(20):
        torch.manual_seed(seed)
        mixed, targets = change_batch(prepare(mixer), levels[:, None, None, None].expand(5, 3, 8, 8), torch.arange(5))
        torch.testing.assert_close(mixed.mean((1, 2, 3)), targets[:, :5] @ levels)
        assert ((targets > 0).sum(1) <= 2).all()


@pytest.mark.parametrize("side", [31, 32])
def test_an_fmix_mask_has_the_area_asked_for_and_few_large_patches(side):
    torch.manual_seed(0)
    for share in (0.0, 0.1, 0.5, 0.93, 1.0):
        mask = draw_mask(share, side, side, 3.0)
        assert mask.dtype == torch.bool
        assert int(mask.sum()) == round(share * side * side)

    def low(decay):
        """Return the share of the masks' variance in waves that are longer than a quarter of the side."""
        masks = torch.stack([draw_mask(0.5, side, side, decay) for _ in range(30)]).float()
        power = torch.fft.fft2(masks - 0.5).abs().square().mean(0)
        waves = torch.fft.fftfreq(side, 1 / side)
        near = waves[:, None].square() + waves[None].square() < 16
        return float(power[near].sum() / power.sum())

    # For white noise it is the share of these frequencies, 4 %.
    assert low(0.01) < 0.1
    assert 0.3 < low(1.5) < low(3.0)
    assert low(3.0) > 0.8


def test_each_batch_gets_one_of_several_mixers_with_the_given_probability():
    setup = prepare(MixUp(alpha=1.0), CutMix(alpha=1.0), Mixing(probability=0.6))
    images, labels = torch.arange(1.0, 5.0)[:, None, None, None].expand(4, 3, 8, 8), torch.arange(4)
    torch.manual_seed(0)
    seen = {"none": 0, "mixup": 0, "cutmix": 0}
    for _ in range(600):
        mixed, targets = change_batch(setup, images, labels)
        blended = (mixed[0] == mixed[0, 0, 0, 0]).all() and not torch.equal(mixed[0], images[0])
        kind = "none" if targets is labels else "mixup" if blended else "cutmix"
        seen[kind] += 1
    assert abs(seen["none"] - 240) < 45
    assert abs(seen["mixup"] - 180) < 45
    assert abs(seen["cutmix"] - 180) < 45


def test_mixing_without_a_mixer_is_refused():
    with pytest.raises(
        UserError, match=r"mixing\.probability=0\.5 does nothing .* set mixup\.alpha, cutmix\.alpha or fmix"
    ):
        read_recipe({"mixing": {"probability": 0.5}})
    with pytest.raises(UserError, match=r"cutmix\.alpha with batch_size=1"):
        read_recipe({"cutmix": {"alpha": 1.0}, "batch_size": 1})


def test_smoothing_of_cut_targets_is_smoothing_of_their_shares():
    setup = prepare(CutMix(alpha=1.0), LabelSmoothing(alpha=0.2))
    logits = torch.randn(8, CLASSES)
    _, targets = setup.mixers[0](torch.randn(8, 3, 8, 8), torch.randint(CLASSES, (8,)))
    smoothed = targets * 0.8 + 0.2 / CLASSES
    torch.testing.assert_close(criterion_of(setup)(logits, targets), SoftTargetCrossEntropy()(logits, smoothed))


def test_erasing_takes_rectangles_out_of_single_images_and_leaves_the_batch_it_was_given_alone():
    setup = prepare(RandomErasing(probability=0.5, max_area=0.3))
    images = torch.ones(400, 3, 16, 16)
    random.seed(0)
    erased, _ = change_batch(setup, images, torch.zeros(400))
    gone = (erased == 0)[:, 0]
    shares = gone.float().mean((1, 2))
    assert abs((shares > 0).float().mean() - 0.5) < 0.1
    assert 0.25 < shares.max() < 0.35
    for mask in gone[shares > 0][:20]:
        assert mask.sum() == mask.any(0).sum() * mask.any(1).sum()  # a rectangle
    assert (images == 1).all()
