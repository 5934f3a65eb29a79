"""Train one recipe: a Lightning fit that reports once an epoch, keeps the best and the last weights, and can resume."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from training.callbacks import NaNStop
from training.classifier import Classifier
from training.data.feeding import Loaders, make_loaders
from training.data.load import ImageData, load_data
from training.errors import Diverged
from training.finders import FindAgain, find_batch_size, find_lr
from training.isolation import isolated_process
from training.models import build_model
from training.recipe import Recipe
from training.report import Outcome, Report
from training.reporter import EpochReporter
from training.resolve import resolve_recipe
from training.techniques.base import TrainingSetup
from training.trainer import make_trainer


@dataclass(frozen=True)
class Resources:
    """What a training may use."""

    threads: int = 1
    workers: int = 0  # loader processes, out of the same CPUs
    device: Literal["cpu", "cuda"] = "cpu"


def train(
    recipe: Recipe,
    folder: Path,
    *,
    metric: str = "val_accuracy",
    resources: Resources = Resources(),
    on_report: Callable[[Report], bool] = lambda report: True,
    release: bool = False,
) -> Outcome:
    """Train a recipe, or go on from `folder/last.ckpt` where there is one.

    Writes `last.ckpt`, to go on from, and `best.ckpt`: the best epoch's weights with the resolved recipe and the class
    names. `on_report` is called at the end of each epoch, after the checkpoint is on disk, first for the epochs already
    in it; returning False stops. With `release`, the validation part is trained on too, and the last epoch is the best.

    Raises:
        UserError: the data, the weights, the machine or what is in the folder do not allow this recipe.
    """
    with isolated_process(recipe.seed, resources.threads):
        # In a function of its own: what it held is free by the time the isolation cleans up.
        return _train(recipe, folder, metric, resources, on_report, release)


def _train(
    recipe: Recipe,
    folder: Path,
    metric: str,
    resources: Resources,
    on_report: Callable[[Report], bool],
    release: bool,
) -> Outcome:
    data = load_data(recipe.data)
    recipe = resolve_recipe(recipe, data, resources.device)
    if release:
        data = replace(data, train=data.train.join(data.val))
    reporter = EpochReporter(folder, recipe, data.classes, metric, on_report, keep_last=release)
    checkpoint = reporter.resume()
    if reporter.stopped or len(reporter.reports) == recipe.epochs:
        return Outcome("stopped" if reporter.stopped else "completed", reporter.recipe, data.classes, reporter.reports)
    prepare = partial(_prepare, data, resources.device)
    epoch_size = recipe.data.epoch_size or len(data.train)
    recipe = find_batch_size(reporter.recipe, prepare, resources.threads, epoch_size)
    loaders = make_loaders(data, recipe, workers=resources.workers, device=resources.device)
    try:
        recipe = reporter.recipe = find_lr(recipe, prepare, loaders, resources.threads)
        # Lightning tells the sampler only after loader workers have been asked for the first batches.
        loaders.train.sampler.set_epoch(len(reporter.reports))
        state = _fit(prepare(recipe, loaders.batch_sizes), loaders, reporter, checkpoint, resources.threads)
    finally:
        loaders.close()
    return Outcome(state, recipe, data.classes, reporter.reports)


def _prepare(data: ImageData, device: str, recipe: Recipe, batch_sizes: tuple[int, ...]) -> Classifier:
    image_size = recipe.preprocessing.image_size
    assert isinstance(image_size, int)  # resolved
    model = build_model(recipe.backbone, len(data.classes), image_size)
    counts = tuple(np.bincount(data.train.labels, minlength=len(data.classes)).tolist())
    setup = TrainingSetup(model, device, len(data.classes), batch_sizes, image_size, counts)
    for technique in recipe.techniques():
        technique.apply(setup)
    return Classifier(recipe, setup)


def _fit(
    classifier: Classifier, loaders: Loaders, reporter: EpochReporter, checkpoint: Path | None, threads: int
) -> Literal["completed", "stopped", "diverged"]:
    finders = [FindAgain(threads)] if classifier.recipe.unfreeze.milestone_lr != "keep" else []
    trainer = make_trainer(classifier, [*finders, NaNStop(), reporter], max_epochs=classifier.recipe.epochs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice on loader workers and intervals
            trainer.fit(classifier, loaders.train, [loaders.val, loaders.train_probe], ckpt_path=checkpoint)
    except Diverged:
        return "diverged"
    return "stopped" if reporter.stopped else "completed"
