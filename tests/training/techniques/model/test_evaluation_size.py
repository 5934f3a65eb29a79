"""Evaluation at another size: which images are predicted, and what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from training.contract.setup import TrainingSetup
from training.contract.specs import Backbone
from training.data.load_data import load_data
from training.data.pipelines.loaders import choose_eval_batch
from training.data.preprocessing.transform import normalise
from training.distributed.rank import ALONE
from training.errors import UserError
from training.evaluate import restore_model
from training.loop.auto_values.finders import _try_steps
from training.model.backbones import build_bare
from training.resolve import resolve_recipe
from training.techniques.model.evaluation_size import EvaluationSize
from training.train import prepare

LARGER = {"factor": 1.25}


def test_the_score_is_that_of_larger_images_and_the_training_is_the_same(fit, load_weights):
    plain, larger = fit(epochs=1), fit(epochs=1, evaluation_size=LARGER)
    assert plain.metrics[-1]["train_loss"] == larger.metrics[-1]["train_loss"]
    recipe, data = larger.outcome.recipe, load_data(larger.outcome.recipe.data)
    assert recipe.preprocessing.image_size == 16
    pixels = [
        np.asarray(Image.fromarray(image).resize((20, 20), Image.Resampling.BILINEAR)) for image in data.val.images
    ]
    model = restore_model(recipe, load_weights(larger.folder, "best"), 10)
    with torch.inference_mode():
        logits = model(normalise(np.stack(pixels), recipe.preprocessing))
    expected = float(F.cross_entropy(logits, torch.from_numpy(data.val.labels)))
    assert larger.metrics[-1]["val_loss"] == pytest.approx(expected, rel=1e-4)
    assert larger.metrics[-1]["val_loss"] != pytest.approx(plain.metrics[-1]["val_loss"], rel=1e-3)


def test_a_backbone_with_a_fixed_size_is_refused():
    model = build_bare(Backbone(name="vit_tiny_patch16_224", weights="none"), 10, 224)
    setup = TrainingSetup(model, "cpu", 10, (4,), 224)
    with pytest.raises(
        UserError, match=r"^evaluation_size\.factor=1\.25: VisionTransformer cannot classify images of 280×280"
    ):
        EvaluationSize(factor=1.25).apply(setup)


def test_the_check_of_the_size_leaves_modes_and_statistics_alone():
    model = build_bare(Backbone(name="test_resnet", weights="none"), 10, 32)
    model.layer1.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    EvaluationSize(factor=2.0).apply(TrainingSetup(model, "cpu", 10, (4,), 32))
    assert model.training
    assert not model.layer1.training
    assert [(name, value) for name, value in model.state_dict().items() if not torch.equal(value, before[name])] == []


def test_an_evaluation_of_larger_images_takes_fewer_at_a_time(tiny_recipe):
    plain, larger = (
        resolve_recipe(tiny_recipe(**fields), load_data(tiny_recipe().data), "cpu")
        for fields in ({}, {"evaluation_size": {"factor": 2.0}})
    )
    assert choose_eval_batch(larger) == choose_eval_batch(plain) // 4


def test_the_batch_size_finder_evaluates_larger_images_and_trains_on_full_ones(tiny_recipe):
    seen = []
    recipe = tiny_recipe(evaluation_size=LARGER, progressive_resizing={"start": 0.5})
    data = load_data(recipe.data)

    def build(recipe, epoch_size):
        classifier = prepare(data, "cpu", ALONE, recipe, epoch_size)
        classifier.model.register_forward_pre_hook(
            lambda model, given: seen.append((model.training, given[0].shape[-1]))
        )
        return classifier

    _try_steps(resolve_recipe(recipe, data, "cpu"), build, 8)
    assert set(seen) == {(True, 16), (False, 20)}
