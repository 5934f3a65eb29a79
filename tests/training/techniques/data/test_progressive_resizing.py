"""The side of the training images in each epoch."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import training.train
from training.contract.setup import TrainingSetup
from training.contract.specs import Backbone
from training.errors import UserError
from training.model.backbones import build_bare
from training.techniques.data.progressive_resizing import ProgressiveResizing


@pytest.fixture
def sides(fit, monkeypatch):
    """Train, and return the side of the images of each training batch, and those of validation."""

    def run(**fields):
        seen: list[tuple[bool, int]] = []
        prepare = training.train.prepare

        def watched(*arguments):
            classifier = prepare(*arguments)
            classifier.model.register_forward_pre_hook(
                lambda model, given: seen.append((model.training, given[0].shape[-1]))
            )
            return classifier

        monkeypatch.setattr(training.train, "prepare", watched)
        fit(**fields)
        trained = [side for is_training, side in seen if is_training]
        return trained, {side for is_training, side in seen if not is_training}

    return run


def test_the_side_grows_in_each_epoch_and_validation_uses_the_full_size(sides):
    trained, validated = sides(
        epochs=5, progressive_resizing={"start": 0.5, "growth": 0.6}, preprocessing={"image_size": 32}
    )
    assert trained == [16] * 4 + [24] * 4 + [24] * 4 + [32] * 8
    assert validated == {32}


def test_sides_are_multiples_of_eight_and_end_at_the_full_side():
    technique = ProgressiveResizing(start=0.5, growth=0.5)
    assert [technique.side_in(epoch, 8, 100) for epoch in range(8)] == [48, 64, 72, 88, 100, 100, 100, 100]
    assert ProgressiveResizing(start=0.25).side_in(0, 8, 16) == 8
    for epochs in (1, 2, 3, 10):
        assert ProgressiveResizing(start=0.5, growth=1.0).side_in(epochs - 1, epochs, 100) == 100


def test_a_resized_batch_is_the_antialiased_one():
    setup = TrainingSetup(nn.Identity(), "cpu", 10, (4,), 32)
    setup.model.forward = lambda images: images
    ProgressiveResizing(start=0.5).apply(setup)
    (resizing,) = setup.callbacks
    resizing.side = 16
    # Stripes that a resize without smoothing would turn into one colour.
    stripes = torch.zeros(1, 3, 32, 32)
    stripes[..., ::2] = 1.0
    images, labels = setup.batch_transforms[0](stripes, torch.tensor([3]))
    assert images.shape == (1, 3, 16, 16)
    assert images.mean() == pytest.approx(0.5, abs=0.01)
    assert images[..., 4:12].std() < 0.1
    assert labels.tolist() == [3]


def test_it_is_refused_where_the_size_is_fixed_or_batches_have_one_image(tiny_recipe):
    model = build_bare(Backbone(name="vit_tiny_patch16_224", weights="none"), 10, 224)
    with pytest.raises(
        UserError, match=r"progressive_resizing\.start=0\.5: VisionTransformer cannot classify images of 112×112"
    ):
        ProgressiveResizing(start=0.5).apply(TrainingSetup(model, "cpu", 10, (4,), 224))
    with pytest.raises(UserError, match="batch_size=1: BatchNorm"):
        tiny_recipe(batch_size=1, progressive_resizing={"start": 0.5})
    with pytest.raises(UserError, match="does nothing while start is 1"):
        tiny_recipe(progressive_resizing={"growth": 0.5})


def test_the_sides_of_a_transformer_are_multiples_of_its_patches():
    model = timm.create_model("test_vit", dynamic_img_size=True, num_classes=10)
    setup = TrainingSetup(model, "cpu", 10, (4,), 160)
    technique = ProgressiveResizing(start=0.5)
    technique.apply(setup)
    (callback,) = setup.callbacks
    sides = {callback.side_in(epoch, 20, 160) for epoch in range(20)}
    assert sides == {80, 96, 112, 128, 144, 160}
    assert {technique.side_in(epoch, 20, 160) for epoch in range(20)} > {88, 104}  # on these the model fails


def test_every_side_is_checked_before_the_training():
    class Picky(torch.nn.Flatten):
        def forward(self, images):
            if images.shape[-1] == 24:
                raise ValueError("24 is not a size")
            return images.mean((2, 3))

    with pytest.raises(
        UserError, match=r"start=0\.5: Picky cannot classify images of 24×24 pixels \(24 is not a size\)"
    ):
        ProgressiveResizing(start=0.5).apply(TrainingSetup(Picky(), "cpu", 3, (4,), 32))
